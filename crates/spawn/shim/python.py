# What a Python template does that need not be C: before it stops, in its children, and at their end.
# Nothing of this is on the stack, or in sys.modules, while the script runs.

import gc
import os
import posix
import sys


FILE = sys.modules["_io"]._IOBase
WRAPPER = type(FILE.__del__)

# ---- before it stops ----

# Variables that a request sets; a module that reads one while it is loaded is loaded by the child.
REQUESTS = (
    "HTTP_ REQUEST_ SCRIPT_ PATH_INFO PATH_TRANSLATED QUERY_STRING CONTENT_ REMOTE_ SERVER_ AUTH_TYPE"
    " GATEWAY_INTERFACE HTTPS DOCUMENT_ SSL_ TLS_ REDIRECT_ UNIQUE_ID"
).split()


class Watch:
    """What a module does while it is loaded, beside being loaded."""

    def __init__(self):
        self.saved = [os.dup(fd) for fd in (0, 1, 2)]
        source, sink = os.memfd_create("in"), os.memfd_create("out")
        os.write(source, b"\n")
        os.lseek(source, 0, os.SEEK_SET)
        for to, fd in (0, source), (1, sink), (2, sink):
            os.dup2(fd, to)
        os.close(source)
        os.close(sink)
        self.env, self.asked = os._Environ, False
        self.read, self.walk = self.env.__getitem__, self.env.__iter__
        self.env.__getitem__ = lambda it, key: self.reading(it, key)
        self.env.__iter__ = lambda it: self.walking(it)
        self.before = self.state()

    def reading(self, it, key):
        name = key if isinstance(key, str) else os.fsdecode(key) if isinstance(key, bytes) else ""
        self.asked |= name.startswith(tuple(REQUESTS)) and it.encodekey(key) not in it._data
        return self.read(it, key)

    def walking(self, it):
        self.asked = True
        return self.walk(it)

    def state(self):
        for stream in sys.stdout, sys.stderr:
            try:
                stream.flush()
            except Exception:
                pass
        return (
            os.lseek(0, 0, os.SEEK_CUR),
            os.fstat(1).st_size,
            len(os.listdir("/proc/self/task")),
            os.listdir("/proc/self/fd"),
            os.getcwd(),
        )

    def clean(self):
        return not self.asked and self.state() == self.before

    def end(self):
        self.env.__getitem__, self.env.__iter__ = self.read, self.walk
        for to, fd in enumerate(self.saved):
            os.dup2(fd, to)
            os.close(fd)


class Seeds:
    """Which generators of random numbers a module made, and whether it chose the seed."""

    def __init__(self):
        import random

        self.type, self.seed, self.chosen = random.Random, random.Random.seed, {}
        self.shared = random._inst
        seeds = self

        def seed(self, a=None, *args, **kwargs):
            seeds.chosen[id(self)] = self, a is not None
            return seeds.seed(self, a, *args, **kwargs)

        self.type.seed = seed

    def end(self):
        """A generator whose seed nobody chose, or that was there before anybody looked, begins anew in each child."""
        self.type.seed = self.seed
        system = sys.modules["random"].SystemRandom
        for it in gc.get_objects():
            if not issubclass(type(it), self.type) or issubclass(type(it), system):
                continue
            _, chosen = self.chosen.get(id(it), (it, it is self.shared))
            if not chosen:
                fresh.append(it.seed)
            elif it is self.shared and id(it) in self.chosen:  # os.register_at_fork() would seed it anew
                fresh.append(lambda state=it.getstate(): it.setstate(state))


def imported(name, path):
    """As the script would import it: a warning is attributed to the script, and so shown or not."""
    try:
        code = compile("__import__(name)", path, "exec", dont_inherit=True)
        exec(code, {"__name__": "__main__", "__file__": path, "name": name})
    except BaseException:
        return False
    return True


def tried(names, left, path, watch):
    """A byte for each of them, from the first on, that does nothing but load: "r" from where random numbers may be drawn; then
    "f" where the next one fails, and that is all it does. What a module has done cannot be taken back, so it is done in a
    copy of this process."""
    report, to = os.pipe()
    pid = os.fork()
    if pid == 0:
        watch.before = watch.state()
        for name in names:
            loads = imported(name, path)
            if not watch.clean() or not left.isdisjoint(sys.modules):
                break
            if not loads:
                os.write(to, b"f")
                break
            os.write(to, b"r" if "random" in sys.modules else b".")
        os._exit(0)
    os.close(to)
    os.waitpid(pid, 0)
    os.set_blocking(report, False)  # a process that a module has left behind may hold the other end
    try:
        told = os.read(report, 1 << 16)
    except BlockingIOError:
        told = b""
    os.close(report)
    os.lseek(0, 0, os.SEEK_SET)
    watch.before = watch.state()
    return told


def ahead(names, path, watch):
    """Imports them, but for those that do more than load, or fail: these names, or None where one did so that had not
    when it was tried."""
    left, failed, at = set(), set(), 0
    seeds = Seeds() if "random" in sys.modules else None
    while at < len(names):
        told = tried(names[at:], left, path, watch)
        good = len(told.rstrip(b"f"))
        seeds = seeds or (Seeds() if b"r" in told else None)
        for name in names[at : at + good]:
            if not imported(name, path) or not watch.clean():
                return None
        # One that fails alone may load with another (models of Django do, behind settings).
        (failed if told.endswith(b"f") else left).update(names[at + good : at + good + 1])
        at += good + 1
    if seeds:
        seeds.end()
    return left | failed.difference(sys.modules)


def load(names, path, env):
    """What stands in the way, or None; the script's code, or None; lines of files, of the search path, of what is left to
    the children."""
    global known
    names = os.fsdecode(names).split()
    path = os.fsdecode(path)
    main = sys.modules["__main__"].__dict__
    main["__file__"], main["__cached__"] = path, None
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
    main["__loader__"] = loader("__main__", path)
    watch = Watch()
    before = {*sys.modules}
    note_search()
    left = ahead(names, path, watch)
    note_ahead(before)
    code = None if left is None else compiled(path)
    code = code if watch.clean() else None
    watch.end()
    if left is None:
        return b"has a module that does not load the same way twice", None, b"", b"", b""
    if code is None:  # the interpreter itself sets them
        del main["__file__"], main["__cached__"]
    known = len(sys.modules)
    own.extend(namespaces())
    ready(dict(variables(env, b"\x1e")))
    rehearse()
    told = [os.fsencode("\n".join(lines)) for lines in (sources(), search(), sorted(left))]
    gc.collect()
    fill()
    gc.freeze()
    return (None, code, *told)


def search():
    """Where modules are looked for, what their files end in, and those that need no file."""
    bootstrap = sys.modules["_frozen_importlib_external"]
    folders = [os.path.realpath(folder) for folder in sys.path if isinstance(folder, str)]
    endings = bootstrap._imp.extension_suffixes() + bootstrap.SOURCE_SUFFIXES + bootstrap.BYTECODE_SUFFIXES
    return [line for line in (*folders, *endings, *sys.builtin_module_names) if "\n" not in line]


# ---- modules that were loaded ahead, and where a program looks for its own ----

asked = set()  # imports, noted by python.c: importer, its package, name, names from it, level
seen = was = ((), (), ())  # sys.path, sys.meta_path, sys.path_hooks: as of the last look, and of the template
loaded_ahead = set()
homes = {}  # of top-level modules: the number of the entry of sys.path, FIRST, None for what is nowhere, or UNKNOWN
imports = {}  # names that each module asked for; those of None another module asked for on its behalf
hidden = []
FIRST, UNKNOWN = -1, -2


def looks():
    return tuple(tuple(it) if isinstance(it, list) else () for it in (sys.path, sys.meta_path, sys.path_hooks))


def note_search():
    global seen, was
    seen = was = looks()


def names_in(keys):
    """What was asked for: importer, name of a module or of something in one."""
    for importer, package, name, names, level in keys:
        if level:
            base = package if isinstance(package, str) else ""
            name = ".".join(filter(None, [base.rsplit(".", level - 1)[0], name]))
        yield importer, name
        for inner in names or ():
            yield importer, f"{name}.{inner}"


def asker():
    """Who calls importlib.import_module()."""
    frame = sys._getframe().f_back
    while frame and str(frame.f_globals.get("__name__")).startswith("importlib"):
        frame = frame.f_back
    return frame and frame.f_globals.get("__name__")


def note_ahead(before):
    loaded_ahead.update(name for name in sys.modules if name not in before)
    homes.update((name, home(name)) for name in loaded_ahead if "." not in name)
    for importer, name in names_in(asked):
        top = name.partition(".")[0]
        if top not in sys.modules:
            homes[top] = None
        if name in loaded_ahead or top not in sys.modules:
            imports.setdefault(importer, set()).add(name if name in loaded_ahead else top)
    imports.pop("__main__", None)
    asked.clear()
    note_search()


def home(name):
    spec = names_of(sys.modules[name]).get("__spec__")
    origin = getattr(spec, "origin", None)
    if origin in ("built-in", "frozen"):
        return FIRST
    if not isinstance(origin, str):
        return UNKNOWN
    package = spec.submodule_search_locations is not None
    folder = os.path.dirname(os.path.dirname(origin) if package else origin)
    entries = [os.path.abspath(it) if isinstance(it, str) else None for it in was[0]]
    return entries.index(folder) if folder in entries else UNKNOWN


def settle():
    """The program looks for modules elsewhere now: what it would find there, or what imports that, is not there yet."""
    global seen, known
    now = seen = looks()
    rest = loaded_ahead - in_use()
    gone = rest
    if all(new[: len(old)] == old for new, old in zip(now[1:], was[1:])):
        gone = misplaced(rest, now[0])
    for name in gone:
        hidden.append(sys.modules.pop(name, None))
        known -= hidden[-1] is not None
        parent, _, inner = name.rpartition(".")
        if parent not in gone and names_of(sys.modules.get(parent)).get(inner, gone) is hidden[-1]:
            delattr(sys.modules[parent], inner)
    loaded_ahead.difference_update(gone)


def in_use():
    """Those that this child has imported, and all that they import."""
    found, more = set(), {name for _, name in names_in(asked)} & loaded_ahead
    while more:
        found |= more
        more = set().union(*(imports.get(name, ()) for name in more)) & loaded_ahead - found
    return found | {name for name in loaded_ahead if any(it.startswith(name + ".") for it in found)}


def misplaced(rest, path):
    listed = {}
    tops = {top for top, at in homes.items() if is_elsewhere(top, at, path, listed)}
    gone = {name for name in rest if name.partition(".")[0] in tops}
    while True:
        dirty = gone | tops
        more = {name for name in rest - gone if not dirty.isdisjoint(imports.get(name, ()))}
        if not dirty.isdisjoint(imports.get(None, ())):
            more = rest - gone
        if not more:
            return gone
        gone |= more


def is_elsewhere(top, at, path, listed):
    if at is None:
        before, without = path, was[0]
    elif at < 0:
        return at == UNKNOWN
    elif was[0][at] not in path:
        return True
    else:
        before, without = path[: path.index(was[0][at])], was[0][:at]
    return any(top in entries(it, listed) for it in before if it not in without)


def entries(folder, listed):
    """Names of what may be modules in an entry of sys.path."""
    if folder not in listed:
        try:
            listed[folder] = {name.partition(".")[0] for name in posix.listdir(folder or ".")}
        except NotADirectoryError:  # an archive may hold any of them
            listed[folder] = homes
        except Exception:
            listed[folder] = ()
    return listed[folder]


def compiled(path):
    """None where that is not possible: each child says so then, as a cold run does."""
    try:
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)
    except Exception:
        return None


def names_of(module):
    try:
        return object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}


FILL = 128 << 10  # bytes of each size at most: another allocator may have no pools
filling = []


def fill():
    """Takes the free places among the template's objects: what a child makes lies together then, and
    not in pages that it has to copy. A pool of places is new where the first two of it come in turn."""
    for size in range(16, 513, 16):
        for _ in range(FILL // size):
            filling.append(filler(size))
            at = id(filling[-1])
            if at & 0x3FFF == 48:
                filling.append(filler(size))
                if size == 32 or id(filling[-1]) == at + size:
                    break


def filler(size):
    """An object of that size that is in nobody's list."""
    if size < 48:
        return object() if size == 16 else len(filling) + 1000
    return bytes(size - 33)


def namespaces():
    """Of modules that are neither Python's nor installed, with what is in them before the fork."""
    library = os.path.dirname(os.__file__) + os.sep
    for module in [*sys.modules.values()]:
        names = names_of(module)
        file = names.get("__file__")
        installed = not isinstance(file, str) or file.startswith(library) or "-packages/" in file
        if not installed:
            yield names, {name: id(value) for name, value in names.items()}


def sources():
    files = (names_of(module).get("__file__") for module in list(sys.modules.values()))
    return [os.path.abspath(file) for file in files if isinstance(file, str) and "\n" not in file]


# ---- in a child, before the script's first line ----

fresh = []  # what makes random state anew
streams = []
inputs = {}  # kinds of standard input that the template has not, and streams as the interpreter makes them
own = []  # namespaces, with the values they had in the template
changes = []  # to the environment, by the interpreter and by modules: name, value before, value now


def variables(block, end):
    for variable in block.split(end):
        name, equals, value = variable.partition(b"=")
        if equals:
            yield name, value


def ready(before):
    """Notes what a child compares with, and what it has to renew."""
    for name in {**before, **posix.environ}:
        old, new = before.get(name), posix.environ.get(name)
        if old != new and not name.startswith((b"GALGO_", b"LD_PRELOAD", b"LD_BIND_NOW")):
            changes.append((name, old, new))
    for fd, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        if stream is not None:
            streams.append((fd, stream, kind(fd)))
    if sys.stdin is sys.__stdin__ is not None:
        foresee(sys.stdin)
    modules = sys.modules
    if "numpy.random" in modules:
        fresh.append(modules["numpy.random"].seed)
    if "multiprocessing.process" in modules:
        fresh.append(key_of_processes)
    if "logging" in modules:
        fresh.append(start_of_log)
    if "threading" in modules:
        fresh.append(main_thread)


def kind(fd):
    status = os.fstat(fd)
    return status.st_mode >> 12, status.st_blksize


def foresee(stdin):
    """A request without a body has /dev/null. Nothing but `sys` may know the stream that it replaces."""
    # sys.stdin, sys.__stdin__, `streams`, here, and the stacks of calls.
    alone = sys.getrefcount(stdin) == (5 if sys.version_info >= (3, 11) else 6)
    saved, null = os.dup(0), os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    if kind(0) != streams[0][2] and hasattr(stdin, "buffer") and hasattr(stdin.buffer, "raw"):
        other = opened(0, stdin, type(stdin.buffer), type(stdin))
        vars(other).update(vars(stdin))
        parts = [(it.buffer, it.buffer.raw) for it in (stdin, other)]
        counts = [tuple(map(sys.getrefcount, pair)) for pair in parts]
        if counts[0] == counts[1] and alone:
            inputs[kind(0)] = other
    os.dup2(saved, 0)
    os.close(saved)
    os.close(null)


def rehearse():
    """What children do is done before, for what the interpreter keeps of it: caches, specialised code."""
    block = b"\0".join(b"=".join(variable) for variable in posix.environ.items())
    for _ in range(9):
        mend(block)
        any(map(destructive, kinds()))


def mend(block):
    environ = posix.environ  # os.environ and os.environb look into it
    environ.clear()
    for name, value in variables(block, b"\0"):
        environ.setdefault(name, value)
    for name, old, new in changes:
        if environ.get(name) != old:
            continue
        if new is None:
            del environ[name]
            posix.unsetenv(name)
        else:
            environ[name] = new
            posix.putenv(name, new)
    for fd, stream, before in streams:
        now = kind(fd)
        if now != before:
            if fd == 0 and now in inputs:
                sys.stdin = sys.__stdin__ = inputs[now]
            else:
                opened(fd, stream)
    for renew in fresh:
        renew()


def opened(fd, stream, as_buffer=None, as_text=None):
    """Made again as at start-up, in place: it knows by then whether it can be repositioned."""
    buffer = stream.buffer
    old = getattr(buffer, "raw", buffer)
    raw = type(old)(fd, old.mode, closefd=False)
    raw.name = old.name
    text = stream.encoding, stream.errors, "\n", stream.line_buffering, stream.write_through
    if old is buffer:
        buffer = raw
    else:
        made = (as_buffer or buffer.__init__)(raw, raw._blksize)
        buffer = made or buffer
    return (as_text or stream.__init__)(buffer, *text)


def key_of_processes():
    process = sys.modules["multiprocessing.process"]
    process._current_process._config["authkey"] = process.AuthenticationString(os.urandom(32))


def start_of_log():
    logging, time = sys.modules["logging"], sys.modules["time"]
    logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()


def main_thread():
    thread = sys.modules["threading"].main_thread()
    if hasattr(thread, "_native_id"):
        thread._set_native_id()


# ---- at its end ----


def learned():
    """The modules that the next template is to have."""
    return os.fsencode("\n".join(located(name) for name in [*sys.modules][known:] if importable(name)))


def located(name):
    """The name, and the file that it stood for here."""
    file = names_of(sys.modules[name]).get("__file__")
    return f"{name}\t{os.path.realpath(file)}" if isinstance(file, str) else name


def importable(name):
    spec = names_of(sys.modules[name]).get("__spec__")
    return spec is not None and spec.name == name and "\n" not in name and "\t" not in name


def spaces():
    """The namespaces that are the child's own."""
    yield sys.modules["__main__"].__dict__
    for name in [*sys.modules][known:]:
        yield names_of(sys.modules[name])


HAS_GC = 1 << 14  # Py_TPFLAGS_HAVE_GC


def thorough(candidates):
    """Whether the interpreter has to be taken apart, given the child's types that have a destructor of some sort."""
    threads = sys.modules["_thread"]._count()  # daemons, which end at a moment of their own
    due = threads or sys.warnoptions or any(map(beyond_us, candidates))
    if due:
        gc.unfreeze()
    return due


def beyond_us(kind):
    """Whether left() cannot find objects of this type, which the collector does not list, or finish() would end them
    again: files with a destructor of their own."""
    return destructive(kind) and (not kind.__flags__ & HAS_GC or issubclass(kind, FILE))


def kinds():
    """The types of the child's own objects."""
    kinds = set(map(type, gc.get_objects()))
    for names in spaces():
        kinds.update(map(type, names.values()))
    return [*kinds]


def destructive(kind):
    """Written in Python, or a generator that may wait in a `finally`."""
    destructor = getattr(kind, "__del__", None)
    return destructor is not None and (type(destructor) is not WRAPPER or hasattr(kind, "throw"))


def let_go():
    """Lets go of what the script holds."""
    for names in spaces():
        for name in [*names]:
            if name != "__builtins__":
                names[name] = None
    for names, before in own:
        for name in [*names]:
            if before.get(name) != id(names[name]):
                names[name] = None


def left(candidates):
    """The child's own objects that are still there and have a destructor."""
    kinds = {kind for kind in candidates if destructive(kind)}
    return [it for it in gc.get_objects() if type(it) in kinds] if kinds else []


def finish():
    """Writes out the files that are still open, and ends what holds itself in a circle (a connection of sqlite3 is part
    of one), for what is written in C may have something to do."""
    for it in reversed([it for it in gc.get_objects() if isinstance(it, FILE)]):
        it.__del__()
    # Behind the files: it changes their order, and a file is written out before what it is made of.
    gc.collect()

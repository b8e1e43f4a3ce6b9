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

# The third part of python.py.

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

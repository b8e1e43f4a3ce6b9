# The second part of python.py: modules that were loaded ahead, and where a program looks for its own.

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

# Regular expressions, in the namespace of python.py, behind it.
#
# What children compile while they run is compiled before the fork. `re` asks for it as for something
# that it has compiled before, and has it in its table from then on, as in a cold run.

PATTERNS, PATTERN = 256, 2000  # so many at most, of so many characters
LEFT = 0b10000101  # flags TEMPLATE, LOCALE and DEBUG of `re`: these warn, depend, print
compiled_ahead = {}  # (type, text, flags): pattern
loaded_with = set()  # what was compiled while modules were loaded
texts = []  # strings that were there before any request


def tables():
    """Of patterns, with how many each holds."""
    names = names_of(sys.modules.get("re"))
    pairs = [(names.get("_cache" + end), names.get("_MAXCACHE" + end)) for end in ("2", "")]
    return [(table, most) for table, most in pairs if isinstance(table, dict) and isinstance(most, int)]


def expect(lessons, code):
    if not tables() or "warnings" not in sys.modules:
        return
    if code:
        texts.append(code)
    for module in [*sys.modules.values()]:
        texts.extend(text for text in names_of(module).values() if type(text) is str and len(text) < PATTERN)
    for line in lessons[:PATTERNS]:
        compile_ahead(line)
    loaded_with.update(*(table for table, _ in tables()))
    if compiled_ahead:
        methods = {"__missing__": missing, "__module__": "builtins", "__slots__": ()}
        be_first_table(type("dict", (dict,), methods))


def be_first_table(kind):
    re = sys.modules["re"]
    name = "_cache2" if hasattr(re, "_cache2") else "_cache"
    setattr(re, name, kind(getattr(re, name)))


def compile_ahead(line):
    """Not what warns or fails: each child says so for itself."""
    re, warnings = sys.modules["re"], sys.modules["warnings"]
    flags, kind, text = line.split(" ", 2)
    saved = [(table, dict(table)) for table, _ in tables()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            text = bytes.fromhex(text)
            text = text if kind == "bytes" else text.decode("utf-8", "surrogatepass")
            compiled_ahead[type(text), text, int(flags)] = re.compile(text, int(flags))
    except Exception:
        pass
    for table, as_it_was in saved:
        table.clear()
        table.update(as_it_was)


def missing(first, key):
    """As `re` itself files what it has compiled."""
    pattern = compiled_ahead.get(key)
    all = tables()
    if pattern is None or any(key in table for table, _ in all[1:]):
        raise KeyError(key)
    for table, most in reversed(all):
        if len(table) >= most:
            del table[next(iter(table))]
        table[key] = pattern
    return pattern


def patterns():
    """A line for each that this child compiled. What a visitor typed stays here: each word of a pattern
    has to be one of the program's, or of its modules."""
    if not texts:
        return
    kept = [key for key in tables()[-1][0] if key not in loaded_with and plain(*key)]
    words = sys.modules["re"].compile(r"\w+").findall
    own_words = set()
    for text in strings() if any(key not in compiled_ahead for key in kept) else ():
        own_words.update(words(text))
    for kind, text, flags in kept[:PATTERNS]:
        read = text if kind is str else text.decode("latin-1")
        if own_words.issuperset(words(read)):
            text = text if kind is bytes else text.encode("utf-8", "surrogatepass")
            yield f"{int(flags)} {kind.__name__} {text.hex()}"


def plain(kind, text, flags):
    return kind in (str, bytes) and type(text) is kind and len(text) <= PATTERN and not flags & LEFT


def strings():
    """Of the modules that the template has loaded: what their functions were compiled with, too."""
    function, code = type(strings), type(strings.__code__)
    due = [*texts]
    for name in [*sys.modules][:known]:
        for value in [*names_of(sys.modules[name]).values()]:
            if type(value) is type:
                due.extend(it.__code__ for it in [*vars(value).values()] if type(it) is function)
            elif type(value) is function:
                due.append(value.__code__)
    for it in due:
        if type(it) is code:
            due.extend(const for const in it.co_consts if type(const) in (str, bytes, code))
        else:
            yield it if type(it) is str else it.decode("latin-1")

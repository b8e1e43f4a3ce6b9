# Code that children run, in the namespace of python.py, behind it.
#
# To call a function, the interpreter counts a reference to its code: a page to be copied, of which a child
# has a few for each. So one child tells what it ran, and templates have that code, and the words in it, side by side.

HOT = 40 << 10  # bytes of lines that tell it: more is less than all
hot = {}  # module: qualified names of its functions
words = []  # interned before the modules that have them


def note_hot(lines):
    """Takes the lines that an earlier child told, before modules are loaded."""
    for line in lines:
        kind, *rest = line.split(" ")
        if kind == "code":
            hot.setdefault(rest[0], set()).update(rest[1:])
        elif kind == "words":
            words.extend(map(sys.intern, rest))


def of_class(value, seen):
    """The functions of a class, or of what one is wrapped in."""
    kind = type(value)
    if kind is FUNCTION:
        yield value
    elif kind in (classmethod, staticmethod):
        yield from of_class(value.__func__, seen)
    elif kind is property:
        for it in value.fget, value.fset, value.fdel:
            yield from of_class(it, seen)
    elif isinstance(value, type) and id(value) not in seen:
        seen.add(id(value))
        for it in [*type.__dict__["__dict__"].__get__(value).values()]:
            yield from of_class(it, seen)


FUNCTION = type(of_class)


def functions():
    seen = set()
    for name in [*sys.modules][:known]:
        for value in [*names_of(sys.modules[name]).values()]:
            for it in of_class(value, seen):
                if type(it.__module__) is str:
                    yield it


def side_by_side():
    """Copies of the code that children run, all of it together. Only of what nobody but its function knows: the
    function's own count, and that of the question."""
    chosen = []
    for it in functions():
        if it.__qualname__ in hot.get(it.__module__, ()) and sys.getrefcount(it.__code__) == 2:
            chosen.append(it)
    for it in chosen:
        filling.append(it.__code__)  # what is free again would be the next one's place
        it.__code__ = it.__code__.replace()
    gc.freeze()


def hot_lines(ran):
    """Given the addresses of code objects."""
    if hot:
        return
    ran = set(memoryview(ran).cast("N"))
    told, known_words, left = {}, set(), HOT
    made_here = set(map(id, gc.get_objects()))  # maybe of what a visitor typed
    for it in functions():
        name = it.__module__ + it.__qualname__
        if id(it.__code__) in ran and id(it) not in made_here and name.isprintable() and " " not in name:
            told.setdefault(it.__module__, set()).add(it.__qualname__)
            known_words.update(words_of(it.__code__))
    for module, names in told.items():
        line = " ".join(["code", module, *sorted(names)])
        left -= len(line)
        if left > 0:
            yield line
    line = " ".join(["words", *sorted(known_words)])
    if known_words and len(line) < left:
        yield line


def words_of(code):
    for it in (*code.co_names, *code.co_varnames, *code.co_consts):
        for word in it if type(it) is tuple else (it,):
            if type(word) is str and word.isascii() and word.isidentifier():
                yield word

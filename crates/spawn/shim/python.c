/* Python: stops where the interpreter opens the script, with the modules loaded that it will import.
 *
 * Py_RunMain() opens its script with fopen(3) after everything else is done: `site` has run, sys.argv
 * and sys.path are set, no Python frame exists. There the script is compiled and the process stops. A
 * child runs the code as _PyRun_SimpleFileObject() would, and leaves as Py_FinalizeEx() would up to the
 * point where that takes the interpreter apart, object by object, in pages shared with its template.
 * What is not written in C is in python.py. No variable PYTHON* is used: `-I` and `-E` ignore them.
 */
#define _GNU_SOURCE
#include "galgo.h"
#include "python.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- words for what is asked of it ---- */

static object *module(const char *name) {
    return PyDict_GetItemString(PyImport_GetModuleDict(), name);
}

/* A value nobody asks for; what it raised is dropped where it is not printed. */
static int called(object *result) {
    if (!result)
        PyErr_Clear();
    return result != NULL;
}

/* ---- the files it is made from ---- */

struct text { char *text; size_t length, room; };

static struct text files, first;
static int recording;

static void append(struct text *to, const char *word, char end) {
    size_t length = strlen(word);
    if (to->length + length + 2 > to->room) {
        size_t room = 2 * to->room + length + 4096;
        char *text = realloc(to->text, room);
        if (!text)
            return;
        to->text = text;
        to->room = room;
    }
    memcpy(to->text + to->length, word, length);
    to->length += length;
    to->text[to->length++] = end;
    to->text[to->length] = 0;
}

static void note(const char *path) {
    static const char *const not[] = {"/proc/", "/sys/", "/dev/"};
    if (path[0] != '/' || strchr(path, '\n') || strstr(path, "/__pycache__/"))
        return;
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (strncmp(path, not[i], strlen(not[i])) == 0)
            return;
    append(&files, path, '\n');
}

/* ---- leaving ---- */

static object *part; /* the namespace of python.py */

static object *ours(const char *name) {
    return PyDict_GetItemString(part, name);
}

/* From Python 3.13 on it is said while what, before that in what. */
static void ignored(object *in, const char *what) {
    void (*format)(const char *, ...) = (void (*)(const char *, ...))dlsym(RTLD_DEFAULT, "PyErr_FormatUnraisable");
    if (format)
        format("Exception ignored on %s", what);
    else
        PyErr_WriteUnraisable(in);
}

/* Py_FinalizeEx() reports what the second flush cannot write to nobody. */
static int flush(const char *name, int report) {
    object *stream = PySys_GetObject(name);
    if (!stream || stream == &_Py_NoneStruct)
        return 1;
    object *closed = PyObject_GetAttrString(stream, "closed");
    if (!called(closed) || PyObject_IsTrue(closed) > 0)
        return 1;
    if (PyObject_CallMethod(stream, "flush", NULL))
        return 1;
    if (report)
        ignored(stream, "flushing sys.stdout");
    else
        PyErr_Clear();
    return 0;
}

/* The child's types that have a destructor of some sort: to ask a type by name writes to it, to its bases and to the
   name. No reference to one is left. */
static object *finalized(void) {
    enum { PY_TP_FINALIZE = 80 };
    object *kinds = PyObject_CallFunction(ours("kinds"), NULL), *found = PyList_New(0);
    ssize_t count = kinds ? PySequence_Size(kinds) : 0;
    for (ssize_t i = 0; i < count; i++) {
        object *kind = PySequence_GetItem(kinds, i);
        /* Before Python 3.10 it raises for types of C. */
        if (PyType_GetSlot(kind, PY_TP_FINALIZE) || PyErr_Occurred())
            PyList_Append(found, kind);
        PyErr_Clear();
        Py_DecRef(kind);
    }
    Py_DecRef(kinds);
    return found;
}

/* What the script has left with others, as a cache of a module: taking the interpreter apart would come to it. None is
   freed, so that nothing is ended twice. */
static void end_what_is_left(object *kinds) {
    object *left = PyObject_CallFunction(ours("left"), "O", kinds);
    ssize_t count = called(left) ? PySequence_Size(left) : 0;
    for (ssize_t i = 0; i < count; i++)
        PyObject_CallFinalizer(PySequence_GetItem(left, i));
}

/* Where there are daemon threads, warnings about what was left open, or destructors of objects that the collector does not
   list, the interpreter is taken apart after all. */
__attribute__((noreturn)) static void leave(int status, int interrupted, int learn) {
    object *threading = module("threading");
    if (threading && !PyObject_CallMethod(threading, "_shutdown", NULL))
        ignored(threading, "threading shutdown");
    object *atexit = module("atexit");
    if (atexit)
        called(PyObject_CallMethod(atexit, "_run_exitfuncs", NULL));
    if (learn) {
        object *names = PyObject_CallFunction(ours("learned"), NULL);
        if (called(names))
            galgo_learned(PyBytes_AsString(names));
    }
    int failed;
    object *kinds = finalized(), *due = PyObject_CallFunction(ours("thorough"), "O", kinds);
    if (called(due) && PyObject_IsTrue(due) > 0) {
        Py_DecRef(kinds);
        PyDict_Clear(part); /* holds the standard streams */
        failed = Py_FinalizeEx() < 0;
    } else {
        failed = !flush("stdout", 1);
        flush("stderr", 0);
        called(PyObject_CallFunction(ours("let_go"), NULL));
        end_what_is_left(kinds);
        called(PyObject_CallFunction(ours("finish"), NULL));
        flush("stdout", 0);
        flush("stderr", 0);
    }
    if (interrupted) {
        signal(SIGINT, SIG_DFL);
        kill(getpid(), SIGINT);
    }
    exit(failed ? 120 : status); /* as Py_Exit() and Py_RunMain() */
}

/* The status of SystemExit, whose value that is not a number goes to standard error. */
static int asked(void) {
    object *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    fflush(stdout);
    if (!value || value == &_Py_NoneStruct)
        return 0;
    object *code = PyObject_GetAttrString(value, "code");
    if (called(code))
        value = code;
    if (value == &_Py_NoneStruct)
        return 0;
    if (PyObject_IsInstance(value, &PyLong_Type) > 0) {
        long status = PyLong_AsLong(value);
        called(status == -1 && PyErr_Occurred() ? NULL : value);
        return (int)status;
    }
    object *stream = PySys_GetObject("stderr");
    if (stream && stream != &_Py_NoneStruct)
        PyFile_WriteObject(value, stream, 1 /* Py_PRINT_RAW */);
    PySys_WriteStderr("\n");
    PyErr_Clear();
    return 1;
}

/* ---- running ---- */

/* As _PyRun_SimpleFileObject(), from its code object on. */
__attribute__((noreturn)) static void run(object *code, object *names, int learn) {
    object *result = NULL;
    if (PySys_Audit("exec", "O", code) == 0)
        result = PyEval_EvalCode(code, names, names);
    int interrupted = !result && PyErr_Occurred() == PyExc_KeyboardInterrupt;
    object *type = NULL, *value = NULL, *trace = NULL;
    int exits = !result && PyErr_ExceptionMatches(PyExc_SystemExit);
    int status = 0;
    PyErr_Fetch(&type, &value, &trace);
    flush("stderr", 0);
    flush("stdout", 0);
    if (!result) {
        PyErr_Restore(type, value, trace);
        if (exits)
            leave(asked(), 0, learn);
        PyErr_Print();
        status = 1;
    }
    PyDict_DelItemString(names, "__file__");
    PyDict_DelItemString(names, "__cached__");
    PyErr_Clear();
    leave(status, interrupted, learn);
}

/* ---- imports, where modules were loaded ahead ---- */

/* A module that was loaded ahead is the one that the program imports only while it looks where the template looked. Each
   import is noted, with who asks, and the first one after sys.path was changed has python.py look again. Functions in C
   have no frames, which a program would see. */
struct method { const char *name; object *(*function)(object *, object *, object *); int flags; const char *about; };
enum { WITH_NAMES = 3 /* METH_VARARGS | METH_KEYWORDS */ };
static object *real_import, *real_gcd_import;

/* Whether sys.path, sys.meta_path or sys.path_hooks are others than python.py has seen. */
static int looks_elsewhere(void) {
    static const char *const names[] = {"path", "meta_path", "path_hooks"};
    object *seen = ours("seen");
    for (int i = 0; i < 3; i++) {
        object *now = PySys_GetObject(names[i]), *then = PyTuple_GetItem(seen, i);
        ssize_t count = now ? PyList_Size(now) : -1;
        if (count != PyTuple_Size(then)) {
            PyErr_Clear();
            return 1;
        }
        for (ssize_t k = 0; k < count; k++)
            if (PyList_GetItem(now, k) != PyTuple_GetItem(then, k))
                return 1;
    }
    return 0;
}

static object *argument(object *args, object *named, ssize_t at, const char *name) {
    object *found = at < PyTuple_Size(args) ? PyTuple_GetItem(args, at) : named ? PyDict_GetItemString(named, name) : NULL;
    return found ? found : &_Py_NoneStruct;
}

/* A list of names cannot be noted as it is. */
static void note_import(object *importer, object *package, object *name, object *names, object *level) {
    object *all[] = {names, &_Py_NoneStruct};
    if (looks_elsewhere() && !PyObject_CallFunction(ours("settle"), NULL)) {
        PyErr_Print(); /* memory is short: another module than the program's must not run */
        _exit(127);
    }
    for (int i = 0; i < 2; i++) {
        object *key = Py_BuildValue("(OOOOO)", importer, package, name, all[i], level);
        int noted = key && PySet_Add(ours("asked"), key) == 0;
        Py_DecRef(key);
        if (noted)
            break;
        PyErr_Clear();
    }
}

static object *import(object *self, object *args, object *named) {
    (void)self;
    object *globals = argument(args, named, 1, "globals");
    object *importer = PyDict_GetItemString(globals, "__name__"), *package = PyDict_GetItemString(globals, "__package__");
    note_import(importer ? importer : &_Py_NoneStruct, package ? package : &_Py_NoneStruct, argument(args, named, 0, "name"),
                argument(args, named, 3, "fromlist"), argument(args, named, 4, "level"));
    return PyObject_Call(real_import, args, named);
}

static object *gcd_import(object *self, object *args, object *named) {
    (void)self;
    object *importer = PyObject_CallFunction(ours("asker"), NULL);
    if (!called(importer))
        importer = &_Py_NoneStruct;
    note_import(importer, argument(args, named, 1, "package"), argument(args, named, 0, "name"), &_Py_NoneStruct,
                argument(args, named, 2, "level"));
    return PyObject_Call(real_gcd_import, args, named);
}

static void replace_import(const char *in, struct method *method, object **real) {
    *real = PyObject_GetAttrString(module(in), method->name);
    object *ours = *real ? PyCFunction_NewEx(method, NULL, NULL) : NULL;
    if (!ours || PyObject_SetAttrString(module(in), method->name, ours) != 0)
        _exit(127);
}

static void note_imports(void) {
    static struct method methods[] = {{"__import__", import, WITH_NAMES, NULL}, {"_gcd_import", gcd_import, WITH_NAMES, NULL}};
    replace_import("builtins", &methods[0], &real_import);
    replace_import("_frozen_importlib", &methods[1], &real_gcd_import);
}

/* ---- the template ---- */

/* Reads python.py and runs it in a namespace of its own. */
static int prepare(void) {
    struct stat about;
    if (fstat(GALGO_SOURCE, &about) != 0)
        return 0;
    char *source = calloc(1, (size_t)about.st_size + 1);
    if (!source || pread(GALGO_SOURCE, source, (size_t)about.st_size, 0) != about.st_size)
        return 0;
    object *code = Py_CompileString(source, "<galgo>", 257 /* Py_file_input */);
    free(source);
    if (!called(code))
        return 0;
    part = PyDict_New();
    PyDict_SetItemString(part, "__builtins__", module("builtins"));
    return called(PyEval_EvalCode(code, part, part));
}

static int stopped;

/* Loads, stops, and in a child runs the script. Returns in a child that is to read it itself. */
static void stop(const char *path) {
    const char *obstacle = NULL;
    object *code = NULL;
    stopped = 1;
    galgo_holds();
    object *before = PyBytes_FromStringAndSize(first.text, (ssize_t)first.length);
    int prepared = prepare();
    if (prepared && *galgo_modules())
        note_imports();
    object *loaded = prepared ? PyObject_CallFunction(ours("load"), "yyO", galgo_modules(), path, before) : NULL;
    if (!loaded) { /* a shortage of descriptors or memory: it is tried again */
        PyErr_Print();
        _exit(127);
    }
    object *why = PySequence_GetItem(loaded, 0);
    if (why != &_Py_NoneStruct)
        obstacle = PyBytes_AsString(why);
    code = PySequence_GetItem(loaded, 1);
    char *names = PyBytes_AsString(PySequence_GetItem(loaded, 2));
    for (char *name = strtok(names, "\n"); name; name = strtok(NULL, "\n"))
        note(name);
    galgo_tell(GALGO_SEARCH, PyBytes_AsString(PySequence_GetItem(loaded, 3)));
    galgo_tell(GALGO_LEFT, PyBytes_AsString(PySequence_GetItem(loaded, 4)));
    note(path);
    recording = 0;
    PyOS_BeforeFork();
    galgo_waits = PyOS_AfterFork_Child;
    galgo_settle();
    galgo_gather(GALGO_CODE);
    int learn = galgo_stop(files.text, obstacle) & GALGO_LEARN;
    size_t length;
    const char *block = galgo_environment(&length);
    object *bytes = PyBytes_FromStringAndSize(block, (ssize_t)length);
    if (!called(PyObject_CallFunction(ours("mend"), "O", bytes)))
        _exit(127);
    if (code && code != &_Py_NoneStruct)
        run(code, PyModule_GetDict(module("__main__")), learn);
}

/* Whether this opening is that of the script. */
static int is_script(const char *path, const char *mode) {
    struct stat opened, script;
    if (stopped || !recording || strcmp(mode, "rb") != 0 || !Py_IsInitialized())
        return 0;
    int gil = PyGILState_Ensure();
    object *argv = PyEval_GetFrame() ? NULL : PySys_GetObject("argv");
    object *first = argv ? PySequence_GetItem(argv, 0) : NULL;
    object *name = first ? PyUnicode_EncodeFSDefault(first) : NULL;
    int same = name && stat(PyBytes_AsString(name), &script) == 0 && stat(path, &opened) == 0 &&
               opened.st_dev == script.st_dev && opened.st_ino == script.st_ino;
    if (!name)
        PyErr_Clear();
    PyGILState_Release(gil);
    return same;
}

/* ---- what the interpreter calls ---- */

static FILE *opened(__typeof__(fopen) *next, const char *path, const char *mode) {
    if (recording && is_script(path, mode)) {
        int gil = PyGILState_Ensure();
        stop(path);
        PyGILState_Release(gil);
    }
    FILE *file = next(path, mode);
    if (recording && file)
        note(path);
    return file;
}

GALGO_EXPORT FILE *fopen(const char *path, const char *mode) {
    return opened(GALGO_NEXT(fopen), path, mode);
}

GALGO_EXPORT FILE *fopen64(const char *path, const char *mode) {
    return opened(GALGO_NEXT(fopen64), path, mode);
}

static int open_as(__typeof__(open) *next, const char *path, int flags, va_list rest) {
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    int fd = next(path, flags, mode);
    if (recording && fd >= 0 && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY))
        note(path);
    return fd;
}

GALGO_EXPORT int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int fd = open_as(GALGO_NEXT(open), path, flags, rest);
    va_end(rest);
    return fd;
}

GALGO_EXPORT int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int fd = open_as(GALGO_NEXT(open64), path, flags, rest);
    va_end(rest);
    return fd;
}

/* ---- the command line ---- */

/* The environment that the server gave, before a wrapper (a shell, `env`) or the interpreter changed
   it: what they changed is changed for each request, too. A wrapper hands it on. */
static void remember(int interpreter) {
    const char *kept = getenv("GALGO_ENVIRONMENT");
    if (kept)
        append(&first, kept, 0);
    else
        for (char **variable = environ; *variable; variable++)
            append(&first, *variable, '\x1e');
    if (!kept && !interpreter && first.text)
        setenv("GALGO_ENVIRONMENT", first.text, 1);
}

static int asks(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

/* In every program on the way, too: only the interpreter has these names. */
__attribute__((constructor)) static void begin(int argc, char **argv) {
    if (!galgo_is("python"))
        return;
    int interpreter = dlsym(RTLD_DEFAULT, "Py_Main") != NULL;
    remember(interpreter);
    if (!interpreter)
        return;
    const char *script, *obstacle = python_unusual(argc, argv, &script);
    if (!dlsym(RTLD_DEFAULT, "Py_BytesMain") || !python_is_there())
        obstacle = "runs a Python older than 3.8, or one that hides its C functions";
    else if (!obstacle && python_is_archive(script))
        obstacle = "is an archive of modules";
    else if (!obstacle && (asks("PYTHONINSPECT") || asks("PYTHONDEVMODE") || asks("PYTHONVERBOSE") ||
                           asks("PYTHONPROFILEIMPORTTIME")))
        obstacle = "runs for its developer (PYTHONINSPECT, PYTHONDEVMODE, PYTHONVERBOSE, PYTHONPROFILEIMPORTTIME)";
    galgo_forget();
    if (obstacle)
        galgo_stop(NULL, obstacle);
    recording = !obstacle;
}

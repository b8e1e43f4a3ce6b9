/* What is used of the interpreter's C functions, which are the same in every version. */
#ifndef GALGO_PYTHON_H
#define GALGO_PYTHON_H

#include <sys/types.h>

typedef struct object object;

/* FUNCTION(what it answers, its name, what it takes) for each. */
#define PYTHON_FUNCTIONS(FUNCTION) \
    FUNCTION(int, Py_IsInitialized, (void)) \
    FUNCTION(int, Py_FinalizeEx, (void)) \
    FUNCTION(int, PyGILState_Ensure, (void)) \
    FUNCTION(void, PyGILState_Release, (int)) \
    FUNCTION(object *, PyEval_EvalCode, (object *, object *, object *)) \
    FUNCTION(object *, PyEval_GetFrame, (void)) \
    FUNCTION(object *, Py_CompileString, (const char *, const char *, int)) \
    FUNCTION(object *, PyImport_GetModuleDict, (void)) \
    FUNCTION(object *, Py_BuildValue, (const char *, ...)) \
    FUNCTION(object *, PyCFunction_NewEx, (void *, object *, object *)) \
    FUNCTION(object *, PyObject_Call, (object *, object *, object *)) \
    FUNCTION(int, PyObject_SetAttrString, (object *, const char *, object *)) \
    FUNCTION(ssize_t, PyList_Size, (object *)) \
    FUNCTION(object *, PyList_GetItem, (object *, ssize_t)) \
    FUNCTION(ssize_t, PyTuple_Size, (object *)) \
    FUNCTION(object *, PyTuple_GetItem, (object *, ssize_t)) \
    FUNCTION(int, PySet_Add, (object *, object *)) \
    FUNCTION(object *, PyDict_New, (void)) \
    FUNCTION(void, PyDict_Clear, (object *)) \
    FUNCTION(object *, PyDict_GetItemString, (object *, const char *)) \
    FUNCTION(int, PyDict_SetItemString, (object *, const char *, object *)) \
    FUNCTION(int, PyDict_DelItemString, (object *, const char *)) \
    FUNCTION(object *, PyModule_GetDict, (object *)) \
    FUNCTION(object *, PyObject_GetAttrString, (object *, const char *)) \
    FUNCTION(object *, PyObject_CallFunction, (object *, const char *, ...)) \
    FUNCTION(object *, PyObject_CallMethod, (object *, const char *, const char *, ...)) \
    FUNCTION(int, PyObject_IsTrue, (object *)) \
    FUNCTION(void, PyObject_CallFinalizer, (object *)) \
    FUNCTION(int, PyObject_IsInstance, (object *, object *)) \
    FUNCTION(object *, PyBytes_FromStringAndSize, (const char *, ssize_t)) \
    FUNCTION(char *, PyBytes_AsString, (object *)) \
    FUNCTION(object *, PyUnicode_EncodeFSDefault, (object *)) \
    FUNCTION(object *, PySequence_GetItem, (object *, ssize_t)) \
    FUNCTION(ssize_t, PySequence_Size, (object *)) \
    FUNCTION(void, Py_DecRef, (object *)) \
    FUNCTION(object *, PyList_New, (ssize_t)) \
    FUNCTION(int, PyList_Append, (object *, object *)) \
    FUNCTION(void *, PyType_GetSlot, (object *, int)) \
    FUNCTION(long, PyLong_AsLong, (object *)) \
    FUNCTION(object *, PySys_GetObject, (const char *)) \
    FUNCTION(int, PySys_Audit, (const char *, const char *, ...)) \
    FUNCTION(int, PyFile_WriteObject, (object *, object *, int)) \
    FUNCTION(void, PySys_WriteStderr, (const char *, ...)) \
    FUNCTION(object *, PyErr_Occurred, (void)) \
    FUNCTION(int, PyErr_ExceptionMatches, (object *)) \
    FUNCTION(void, PyErr_Fetch, (object **, object **, object **)) \
    FUNCTION(void, PyErr_Restore, (object *, object *, object *)) \
    FUNCTION(void, PyErr_NormalizeException, (object **, object **, object **)) \
    FUNCTION(void, PyErr_Clear, (void)) \
    FUNCTION(void, PyErr_Print, (void)) \
    FUNCTION(void, PyErr_WriteUnraisable, (object *)) \
    FUNCTION(void, PyOS_BeforeFork, (void)) \
    FUNCTION(void, PyOS_AfterFork_Child, (void))

/* They are the program's, or its library's: a program on the way to the interpreter has none. */
#define DECLARE(ANSWER, NAME, TAKES) \
    extern ANSWER NAME TAKES __attribute__((weak, visibility("default")));
PYTHON_FUNCTIONS(DECLARE)
extern object _Py_NoneStruct __attribute__((weak, visibility("default")));
extern object *PyExc_SystemExit __attribute__((weak, visibility("default")));
extern object *PyExc_KeyboardInterrupt __attribute__((weak, visibility("default")));
extern object PyLong_Type __attribute__((weak, visibility("default")));

/* python_command.c */
const char *python_unusual(int argc, char **argv, const char **script);
int python_is_archive(const char *path);

/* Whether all of them are there. */
#define IS_THERE(ANSWER, NAME, TAKES) && NAME
static inline int python_is_there(void) {
    return &_Py_NoneStruct && &PyExc_SystemExit && &PyExc_KeyboardInterrupt && &PyLong_Type PYTHON_FUNCTIONS(IS_THERE);
}

#endif

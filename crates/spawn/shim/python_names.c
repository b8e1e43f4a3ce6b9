/* Finds what python.h declares. */
#define _GNU_SOURCE
#include "python.h"

#include <dlfcn.h>
#include <string.h>

struct python py;

static const struct { void *at; const char *name; } NAMES[] = {
    {&py.IsInitialized, "Py_IsInitialized"},
    {&py.FinalizeEx, "Py_FinalizeEx"},
    {&py.GILState_Ensure, "PyGILState_Ensure"},
    {&py.GILState_Release, "PyGILState_Release"},
    {&py.Eval_EvalCode, "PyEval_EvalCode"},
    {&py.Eval_GetFrame, "PyEval_GetFrame"},
    {&py.CompileString, "Py_CompileString"},
    {&py.Import_GetModuleDict, "PyImport_GetModuleDict"},
    {&py.Dict_New, "PyDict_New"},
    {&py.Dict_Clear, "PyDict_Clear"},
    {&py.Dict_GetItemString, "PyDict_GetItemString"},
    {&py.Dict_SetItemString, "PyDict_SetItemString"},
    {&py.Dict_DelItemString, "PyDict_DelItemString"},
    {&py.Module_GetDict, "PyModule_GetDict"},
    {&py.Object_GetAttrString, "PyObject_GetAttrString"},
    {&py.Object_CallFunction, "PyObject_CallFunction"},
    {&py.Object_CallMethod, "PyObject_CallMethod"},
    {&py.Object_IsTrue, "PyObject_IsTrue"},
    {&py.Object_CallFinalizer, "PyObject_CallFinalizer"},
    {&py.Object_IsInstance, "PyObject_IsInstance"},
    {&py.Bytes_FromStringAndSize, "PyBytes_FromStringAndSize"},
    {&py.Bytes_AsString, "PyBytes_AsString"},
    {&py.Unicode_EncodeFSDefault, "PyUnicode_EncodeFSDefault"},
    {&py.Sequence_GetItem, "PySequence_GetItem"},
    {&py.Sequence_Size, "PySequence_Size"},
    {&py.DecRef, "Py_DecRef"},
    {&py.List_New, "PyList_New"},
    {&py.List_Append, "PyList_Append"},
    {&py.Type_GetSlot, "PyType_GetSlot"},
    {&py.Long_AsLong, "PyLong_AsLong"},
    {&py.Sys_GetObject, "PySys_GetObject"},
    {&py.Sys_Audit, "PySys_Audit"},
    {&py.File_WriteObject, "PyFile_WriteObject"},
    {&py.Sys_WriteStderr, "PySys_WriteStderr"},
    {&py.Err_Occurred, "PyErr_Occurred"},
    {&py.Err_ExceptionMatches, "PyErr_ExceptionMatches"},
    {&py.Err_Fetch, "PyErr_Fetch"},
    {&py.Err_Restore, "PyErr_Restore"},
    {&py.Err_NormalizeException, "PyErr_NormalizeException"},
    {&py.Err_Clear, "PyErr_Clear"},
    {&py.Err_Print, "PyErr_Print"},
    {&py.Err_WriteUnraisable, "PyErr_WriteUnraisable"},
    {&py.OS_BeforeFork, "PyOS_BeforeFork"},
    {&py.OS_AfterFork_Child, "PyOS_AfterFork_Child"},
    {&py.None, "_Py_NoneStruct"},
    {&py.SystemExit, "PyExc_SystemExit"},
    {&py.KeyboardInterrupt, "PyExc_KeyboardInterrupt"},
    {&py.Int, "PyLong_Type"},
};

int python_resolve(void) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        void *found = dlsym(RTLD_DEFAULT, NAMES[i].name);
        if (!found)
            return 0;
        memcpy(NAMES[i].at, &found, sizeof found);
    }
    return 1;
}

/* The C functions of the interpreter, of any version: found by name, in the program or its library. */
#ifndef GALGO_PYTHON_H
#define GALGO_PYTHON_H

#include <sys/types.h>

typedef struct object object;

extern struct python {
    int (*IsInitialized)(void);
    int (*FinalizeEx)(void);
    int (*GILState_Ensure)(void);
    void (*GILState_Release)(int);
    object *(*Eval_EvalCode)(object *, object *, object *);
    object *(*Eval_GetFrame)(void);
    object *(*CompileString)(const char *, const char *, int);
    object *(*Import_GetModuleDict)(void);
    object *(*Dict_New)(void);
    void (*Dict_Clear)(object *);
    object *(*Dict_GetItemString)(object *, const char *);
    int (*Dict_SetItemString)(object *, const char *, object *);
    int (*Dict_DelItemString)(object *, const char *);
    object *(*Module_GetDict)(object *);
    object *(*Object_GetAttrString)(object *, const char *);
    object *(*Object_CallFunction)(object *, const char *, ...);
    object *(*Object_CallMethod)(object *, const char *, const char *, ...);
    int (*Object_IsTrue)(object *);
    void (*Object_CallFinalizer)(object *);
    int (*Object_IsInstance)(object *, object *);
    object *(*Bytes_FromStringAndSize)(const char *, ssize_t);
    char *(*Bytes_AsString)(object *);
    object *(*Unicode_EncodeFSDefault)(object *);
    object *(*Sequence_GetItem)(object *, ssize_t);
    ssize_t (*Sequence_Size)(object *);
    void (*DecRef)(object *);
    object *(*List_New)(ssize_t);
    int (*List_Append)(object *, object *);
    void *(*Type_GetSlot)(object *, int);
    long (*Long_AsLong)(object *);
    object *(*Sys_GetObject)(const char *);
    int (*Sys_Audit)(const char *, const char *, ...);
    int (*File_WriteObject)(object *, object *, int);
    void (*Sys_WriteStderr)(const char *, ...);
    object *(*Err_Occurred)(void);
    int (*Err_ExceptionMatches)(object *);
    void (*Err_Fetch)(object **, object **, object **);
    void (*Err_Restore)(object *, object *, object *);
    void (*Err_NormalizeException)(object **, object **, object **);
    void (*Err_Clear)(void);
    void (*Err_Print)(void);
    void (*Err_WriteUnraisable)(object *);
    void (*OS_BeforeFork)(void);
    void (*OS_AfterFork_Child)(void);
    object *None, **SystemExit, **KeyboardInterrupt, *Int;
} py;

/* Whether all of them are there. */
int python_resolve(void);

#endif

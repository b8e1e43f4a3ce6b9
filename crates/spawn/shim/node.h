/* What the parts of Node's shim share, and Node-API (stable since Node 8) and libuv as far as used. */
#ifndef GALGO_NODE_H
#define GALGO_NODE_H

#include <stdint.h>
#include <sys/types.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_ref__ *napi_ref;
typedef struct napi_callback_info__ *napi_info;
typedef napi_value napi_callback(napi_env, napi_info);

#define API(NAME, ...) \
    extern int NAME(__VA_ARGS__) __attribute__((weak, visibility("default")))
API(napi_add_env_cleanup_hook, napi_env, void (*)(void *), void *);
API(napi_call_function, napi_env, napi_value, napi_value, size_t, const napi_value *, napi_value *);
API(napi_create_arraybuffer, napi_env, size_t, void **, napi_value *);
API(napi_create_function, napi_env, const char *, size_t, napi_callback *, void *, napi_value *);
API(napi_create_reference, napi_env, napi_value, uint32_t, napi_ref *);
API(napi_create_string_utf8, napi_env, const char *, size_t, napi_value *);
API(napi_create_uint32, napi_env, uint32_t, napi_value *);
API(napi_get_cb_info, napi_env, napi_info, size_t *, napi_value *, napi_value *, void **);
API(napi_get_named_property, napi_env, napi_value, const char *, napi_value *);
API(napi_get_reference_value, napi_env, napi_ref, napi_value *);
API(napi_get_uv_event_loop, napi_env, void **);
API(napi_get_value_int32, napi_env, napi_value, int32_t *);
API(napi_get_value_string_utf8, napi_env, napi_value, char *, size_t, size_t *);
API(napi_get_value_uint32, napi_env, napi_value, uint32_t *);
API(napi_run_script, napi_env, napi_value, napi_value *);
API(napi_set_named_property, napi_env, napi_value, const char *, napi_value);
API(uv_loop_fork, void *);
extern uint64_t uv_hrtime(void) __attribute__((weak, visibility("default")));

/* node::per_process::node_start_time, from which process.uptime() counts; not promised by anybody. */
extern uint64_t galgo_node_start_time __asm__("_ZN4node11per_process15node_start_timeE")
    __attribute__((weak, visibility("default")));

/* This process is a Node template or parked, or has been; it has its request. */
extern int galgo_node_ours, galgo_node_child;

/* The threads there are; `busy`: whether one of them is at work. */
uint32_t galgo_node_threads(int *busy);

/* In a template: stops those that sleep until there is work. A child has them again when it needs them. */
void galgo_node_park(void);

/* Descriptors of event loops: how many there are (a template), making them a child's own (a child). */
uint32_t galgo_node_parts(void);
void galgo_node_replace_parts(void);

/* An environment's cleanup hook: where there is a request, the end of the process. */
void galgo_node_leave(void *unused);

/* Functions for node.cjs. */
napi_callback galgo_node_really_exit, galgo_node_emitter, galgo_node_teach;

/* The one argument of a function; `undefined` where there is none. */
napi_value galgo_node_argument(napi_env env, napi_info info);

/* The UTF-8 text of a string, to be freed; NULL where it is none. */
char *galgo_node_text(napi_env env, napi_value value);

#endif

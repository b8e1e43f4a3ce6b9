/* How a child of a Node template ends. */
#define _GNU_SOURCE
#include "galgo.h"
#include "node.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Node's own end would wait for threads and take its heap apart. Nothing of that can be seen from
   outside, and it is a good part of a short life. What addons registered to be done at the end has
   been done when this is called: last registered, first called. */
static int32_t exit_code = 7; /* without an "exit" event: a handler of uncaught exceptions threw */

void galgo_node_leave(void *unused) {
    (void)unused;
    if (!galgo_node_child)
        return;
    fflush(NULL);
    _exit(exit_code);
}

static napi_ref emit_ref, preload_report_ref;

/* process.reallyExit, the last step of process.exit. */
napi_value galgo_node_really_exit(napi_env env, napi_info info) {
    exit_code = 0;
    napi_get_value_int32(env, galgo_node_argument(env, info), &exit_code);
    galgo_node_leave(NULL);
    return NULL;
}

/* process.emit: Node ends with process.emit("exit"), however it ends. */
static napi_value emit(napi_env env, napi_info info) {
    napi_value arguments[16], self, original, name, result = NULL;
    size_t count = 16;
    napi_get_cb_info(env, info, &count, arguments, &self, NULL);
    napi_get_reference_value(env, emit_ref, &original);
    char bytes[8] = "";
    size_t length = 0;
    int exits = count > 0 && napi_get_value_string_utf8(env, arguments[0], bytes, sizeof bytes, &length) == 0 && strcmp(bytes, "exit") == 0;
    int32_t code = 0;
    if (exits && count > 1 && napi_get_value_int32(env, arguments[1], &code) == 0)
        exit_code = code;
    if (napi_call_function(env, self, original, count < 16 ? count : 16, arguments, &result) != 0)
        return NULL;
    if (!exits)
        return result;
    if (napi_get_named_property(env, self, "exitCode", &name) == 0 && napi_get_value_int32(env, name, &code) == 0)
        exit_code = code;
    if (preload_report_ref) {
        napi_value preload_report, modules;
        napi_get_reference_value(env, preload_report_ref, &preload_report);
        if (napi_call_function(env, self, preload_report, 0, NULL, &modules) == 0) {
            char *names = galgo_node_text(env, modules);
            if (names)
                galgo_learned(names);
            free(names);
        }
    }
    return result;
}

/* emitter(process.emit): what stands in its place. */
napi_value galgo_node_emitter(napi_env env, napi_info info) {
    napi_value replacement = NULL;
    napi_create_reference(env, galgo_node_argument(env, info), 1, &emit_ref);
    napi_create_function(env, "emit", 4, emit, NULL, &replacement);
    return replacement;
}

napi_value galgo_node_teach(napi_env env, napi_info info) {
    napi_create_reference(env, galgo_node_argument(env, info), 1, &preload_report_ref);
    return NULL;
}

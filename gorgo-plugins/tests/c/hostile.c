/* A plugin for tests with one defect, chosen by the definitions that it is compiled with. */
#include <math.h>
#include <stdlib.h>

#include "gorgo_plugin.h"

#ifndef MAJOR
#define MAJOR GORGO_ABI_MAJOR
#endif
#ifndef SIZE
#define SIZE sizeof(gorgo_judge)
#endif
#ifndef NEEDS
#define NEEDS 0
#endif
#ifndef UNIT
#define UNIT GORGO_UNIT_MILLIS
#endif
#ifndef NAME
#define NAME "hostile-c"
#endif
#ifndef VALUE
#define VALUE 1.0
#endif

#ifdef ABORT
__attribute__((constructor)) static void at_load(void) {
    abort();
}
#endif

#ifdef UNBOUND
extern int gorgo_nobody_has_this(void);
#endif

static int32_t create(const gorgo_setup *setup, void **instance, gorgo_error *error) {
    static char nothing;
    (void)setup, (void)error;
#ifdef UNBOUND
    if (setup == NULL) {
        return gorgo_nobody_has_this();
    }
#endif
    *instance = &nothing;
    return GORGO_DONE;
}

static void destroy(void *instance) {
    (void)instance;
}

static int32_t call(const void *instance, const gorgo_request *request, const gorgo_columns *columns,
                    gorgo_output *output, gorgo_error *error) {
    (void)instance, (void)request, (void)error;
    if (columns->struct_size < sizeof *columns) {
        return GORGO_BAD_INPUT;
    }
#ifdef LONG_ERROR
    error->len = (size_t)-1;
    return GORGO_ERROR;
#endif
#ifdef STATUS
    return STATUS;
#endif
#ifdef CRASH
    abort();
#endif
    for (size_t row = 0; row < columns->count; row++) {
        output->value[row] = VALUE;
    }
    return GORGO_DONE;
}

static const gorgo_judge DESCRIPTOR = {
    .head =
        {
            .abi_major = MAJOR,
            .struct_size = SIZE,
            .name = GORGO_TEXT(NAME),
            .version = GORGO_TEXT("1"),
            .summary = GORGO_TEXT("wrong in one way"),
            .unit = UNIT,
            .needs = NEEDS,
            .option_size = sizeof(gorgo_option),
        },
    .create = create,
    .destroy = destroy,
#ifndef NO_CALL
    .call = call,
#endif
};

#ifdef SYMBOL
const gorgo_judge *SYMBOL(void);
const gorgo_judge *SYMBOL(void) {
#else
const gorgo_judge *gorgo_scorer_v1(void) {
#endif
    (void)call;
    return &DESCRIPTOR;
}

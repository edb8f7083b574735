/*
 * The built-in term `queue`, written in C: uncached prompt tokens of requests without a first token.
 *
 *     cc -std=c11 -O2 -shared -fPIC -I gorgo-plugins/include -o libgorgo_scorer_queue_c.so queue.c
 */
#include <string.h>

#include "gorgo_plugin.h"

static int32_t fail(gorgo_error *error, int32_t status, const char *text) {
    if (error != NULL && error->ptr != NULL) {
        size_t len = strlen(text);
        error->len = len < error->cap ? len : error->cap;
        memcpy(error->ptr, text, error->len);
    }
    return status;
}

/* No state: the instance is any address that is not null. */
static int32_t create(const gorgo_setup *setup, void **instance, gorgo_error *error) {
    static char nothing;
    if (setup == NULL || setup->struct_size < sizeof *setup) {
        return fail(error, GORGO_BAD_INPUT, "the setup is shorter than this plugin expects");
    }
    *instance = &nothing;
    return GORGO_DONE;
}

static void destroy(void *instance) {
    (void)instance;
}

static int32_t call(const void *instance, const gorgo_request *request, const gorgo_columns *columns,
                    gorgo_output *output, gorgo_error *error) {
    (void)instance;
    if (request == NULL || columns == NULL || output == NULL || columns->struct_size < sizeof *columns ||
        output->struct_size < sizeof *output || output->count != columns->count) {
        return fail(error, GORGO_BAD_INPUT, "the columns or the output are not as this plugin expects");
    }
    for (size_t row = 0; row < columns->count; row++) {
        output->value[row] = (double)columns->queued_uncached_tokens[row];
    }
    return GORGO_DONE;
}

static const gorgo_judge DESCRIPTOR = {
    .head =
        {
            .abi_major = GORGO_ABI_MAJOR,
            .struct_size = sizeof(gorgo_judge),
            .name = GORGO_TEXT("queue-c"),
            .version = GORGO_TEXT("1.0"),
            .summary = GORGO_TEXT("uncached tokens that wait at the replica"),
            .unit = GORGO_UNIT_TOKENS,
            .needs = GORGO_NEED_LOAD,
            .flags = GORGO_FLAG_SPREADS,
            .option_size = sizeof(gorgo_option),
            .options = NULL,
            .option_count = 0,
        },
    .create = create,
    .destroy = destroy,
    .call = call,
};

const gorgo_judge *gorgo_scorer_v1(void) {
    return &DESCRIPTOR;
}

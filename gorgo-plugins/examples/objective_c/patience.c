/*
 * An objective in C: the mean of TTFT squared, in seconds squared, so that one long wait counts more than many short
 * ones. A request that failed counts as one minute.
 *
 *     cc -std=c11 -O2 -shared -fPIC -I gorgo-plugins/include -o libgorgo_objective_patience_c.so patience.c
 */
#include <string.h>

#include "gorgo_plugin.h"

static const double FAILED_SECS = 60.0;

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

static int32_t measure(const void *instance, const gorgo_cohort *cohort, double *value, gorgo_error *error) {
    (void)instance;
    if (cohort == NULL || value == NULL || cohort->struct_size < sizeof *cohort) {
        return fail(error, GORGO_BAD_INPUT, "the cohort is shorter than this plugin expects");
    }
    double sum = (double)cohort->failed * FAILED_SECS * FAILED_SECS;
    double count = (double)cohort->failed;
    for (size_t request = 0; request < cohort->count; request++) {
        double secs = cohort->ttft_ms[request] / 1e3;
        if (secs == secs) { /* false for NaN, an unknown number */
            sum += secs * secs;
            count += 1.0;
        }
    }
    if (count == 0.0) {
        return fail(error, GORGO_ERROR, "the cohort has neither a request with a known TTFT nor a failed one");
    }
    *value = sum / count;
    return GORGO_DONE;
}

static const gorgo_objective DESCRIPTOR = {
    .head =
        {
            .abi_major = GORGO_ABI_MAJOR,
            .struct_size = sizeof(gorgo_objective),
            .name = GORGO_TEXT("patience-c"),
            .version = GORGO_TEXT("1.0"),
            .summary = GORGO_TEXT("mean of TTFT squared"),
            .unit = GORGO_UNIT_ONE,
            .needs = 0,
            .flags = 0,
            .option_size = sizeof(gorgo_option),
            .options = NULL,
            .option_count = 0,
        },
    .create = create,
    .destroy = destroy,
    .measure = measure,
};

GORGO_EXPORT const gorgo_objective *gorgo_objective_v1(void) {
    return &DESCRIPTOR;
}

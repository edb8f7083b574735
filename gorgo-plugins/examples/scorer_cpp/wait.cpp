// Wait for the first token, predicted from the learned rates, in C++:
//
//     c++ -std=c++17 -O2 -shared -fPIC -I gorgo-plugins/include -o libgorgo_scorer_wait.so wait.cpp
//
// The signal of a replica whose rates are not learned yet is unknown, and the policy's `unknown` applies. The option
// `headroom` multiplies the prediction, which is a mean.
#include <cmath>
#include <cstring>
#include <new>

#include "gorgo_plugin.h"

namespace {

struct Wait {
    double headroom;
};

int32_t fail(gorgo_error *error, int32_t status, const char *text) {
    if (error != nullptr && error->ptr != nullptr) {
        const std::size_t len = std::strlen(text);
        error->len = len < error->cap ? len : error->cap;
        std::memcpy(error->ptr, text, error->len);
    }
    return status;
}

bool is(const gorgo_text &text, const char *literal) {
    return text.len == std::strlen(literal) && std::memcmp(text.ptr, literal, text.len) == 0;
}

int32_t create(const gorgo_setup *setup, void **instance, gorgo_error *error) {
    if (setup == nullptr || setup->struct_size < sizeof *setup || setup->setting_size != sizeof(gorgo_setting)) {
        return fail(error, GORGO_BAD_INPUT, "the setup is not as this plugin expects");
    }
    double headroom = 1.0;
    for (std::size_t place = 0; place < setup->setting_count; place++) {
        const gorgo_setting &setting = setup->settings[place];
        if (is(setting.key, "headroom") && setting.kind == GORGO_KIND_NUMBER) {
            headroom = setting.number;
        }
    }
    // No exception may leave the function, so memory is allocated without one.
    Wait *wait = new (std::nothrow) Wait{headroom};
    if (wait == nullptr) {
        return fail(error, GORGO_ERROR, "no memory");
    }
    *instance = wait;
    return GORGO_DONE;
}

void destroy(void *instance) {
    delete static_cast<Wait *>(instance);
}

int32_t call(const void *instance, const gorgo_request *request, const gorgo_columns *columns, gorgo_output *output,
             gorgo_error *error) {
    if (instance == nullptr || request == nullptr || columns == nullptr || output == nullptr ||
        request->struct_size < sizeof *request || columns->struct_size < sizeof *columns ||
        output->struct_size < sizeof *output || output->count != columns->count) {
        return fail(error, GORGO_BAD_INPUT, "the request, the columns or the output are not as this plugin expects");
    }
    const Wait &wait = *static_cast<const Wait *>(instance);
    for (std::size_t row = 0; row < columns->count; row++) {
        const uint32_t cached = columns->cached_tokens[row];
        const double uncached = request->prompt_tokens > cached ? request->prompt_tokens - cached : 0;
        const double ms = columns->rtt_ms[row] + columns->intercept_ms[row] +
                          columns->prefill_ms_per_token[row] * uncached +
                          columns->queue_ms_per_token[row] * static_cast<double>(columns->queued_uncached_tokens[row]);
        output->known[row] = std::isfinite(ms);
        output->value[row] = ms * wait.headroom;
    }
    return GORGO_DONE;
}

const gorgo_option OPTIONS[] = {{
    GORGO_TEXT("headroom"),
    GORGO_TEXT(""),
    GORGO_TEXT("factor on the prediction"),
    GORGO_KIND_NUMBER,
    GORGO_OPTION_TUNABLE,
    1.0,
    0.5,
    4.0,
}};

const gorgo_judge DESCRIPTOR = {
    {
        GORGO_ABI_MAJOR,
        sizeof(gorgo_judge),
        GORGO_TEXT("wait"),
        GORGO_TEXT("1.0"),
        GORGO_TEXT("time to first token, predicted from the learned rates"),
        GORGO_UNIT_MILLIS,
        GORGO_NEED_RTT | GORGO_NEED_PREFIX | GORGO_NEED_LOAD | GORGO_NEED_RATES,
        GORGO_FLAG_SPREADS,
        sizeof(gorgo_option),
        OPTIONS,
        1,
    },
    create,
    destroy,
    call,
    nullptr,
    0,
};

} // namespace

extern "C" const gorgo_judge *gorgo_scorer_v1(void) {
    return &DESCRIPTOR;
}

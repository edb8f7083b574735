/*
 * The plugin contract of gorgo, version 1, in C. `src/abi.rs` says the same in Rust; a test compares the two.
 *
 * SEVERAL THREADS CALL ONE INSTANCE AT THE SAME TIME: keep an instance's data read-only once it is made, or lock it.
 * No input or output and no waiting in a call: a request waits for the decision, and a plugin that is slow or fails
 * too often is quarantined.
 *
 * A library exports one or more of gorgo_scorer_v1, gorgo_constraint_v1, gorgo_objective_v1. Each returns a static
 * descriptor, which begins with GORGO_ABI_MAJOR and its own size in bytes. Fields are only ever appended: do not read
 * a field beyond the `struct_size` of a struct that is passed in.
 *
 * No exception and no longjmp may leave a function.
 */
#ifndef GORGO_PLUGIN_H
#define GORGO_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define GORGO_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define GORGO_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define GORGO_ABI_MAJOR 1u

/* Put this before the function that a library exports. */
#define GORGO_EXPORT __attribute__((visibility("default")))

/* Status that a function returns. */
enum gorgo_status {
    GORGO_DONE = 0,       /* success */
    GORGO_BAD_INPUT = 1,  /* the input violates the contract */
    GORGO_ERROR = 2,      /* the call failed; the text says why */
    GORGO_PANICKED = 3,   /* the plugin panicked; the instance is not called again */
    GORGO_NO_OPINION = 4  /* no opinion on this request; not a failure */
};

/* Columns with their own field that a plugin reads, as bits of `needs`. Only requested columns are passed in; others
 * are null. Any fact can be requested by its name in `facts` of gorgo_judge; the names are those of expressions. */
enum gorgo_need {
    GORGO_NEED_RTT = 1,
    GORGO_NEED_PREFIX = 2,
    GORGO_NEED_LOAD = 4,
    GORGO_NEED_REPORT = 8,
    GORGO_NEED_RATES = 16,
    GORGO_NEED_LATENCY = 32
};

/* The unit of a signal. */
enum gorgo_unit {
    GORGO_UNIT_MILLIS = 0,
    GORGO_UNIT_TOKENS = 1,
    GORGO_UNIT_REQUESTS = 2,
    GORGO_UNIT_SHARE = 3,
    GORGO_UNIT_TOKENS_PER_SECOND = 4,
    GORGO_UNIT_ONE = 5
};

/* Further properties of a plugin, as bits of `flags`. */
enum gorgo_flag {
    GORGO_FLAG_SPREADS = 1, /* a scorer's signal rises with the work that a replica was given */
    GORGO_FLAG_HARD = 2     /* a constraint is never relaxed */
};

/* The kind of an option or a setting. */
enum gorgo_kind {
    GORGO_KIND_NUMBER = 0,  /* a number within bounds */
    GORGO_KIND_TEXT = 1,    /* text */
    GORGO_KIND_BOOL = 2,    /* `number` is 1 or 0 */
    GORGO_KIND_NUMBERS = 3, /* numbers by name: settings "option.name" of kind NUMBER */
    GORGO_KIND_TEXTS = 4    /* several texts: settings of the same key of kind TEXT */
};

/* Further properties of an option, as bits. */
enum gorgo_option_flag {
    GORGO_OPTION_REQUIRED = 1,
    GORGO_OPTION_TUNABLE = 2
};

/* UTF-8 without a terminating zero. Borrowed: in a descriptor forever, otherwise for the call. */
typedef struct gorgo_text {
    const char *ptr;
    size_t len;
} gorgo_text;

/* A text from a string literal. */
#define GORGO_TEXT(literal) { (literal), sizeof(literal) - 1 }

/* Buffer in which a failing function may leave text: write at most `cap` bytes, and set `len` to their number. */
typedef struct gorgo_error {
    char *ptr;
    size_t cap;
    size_t len;
} gorgo_error;

/* An option that a plugin declares: a key of `options` in the policy. */
typedef struct gorgo_option {
    gorgo_text name;
    gorgo_text unit;
    gorgo_text help;
    uint32_t kind;  /* gorgo_kind */
    uint32_t flags; /* gorgo_option_flag */
    double fallback; /* value if the option is not set; NaN: no default */
    double min;
    double max;
} gorgo_option;

/* Value of an option in the policy. */
typedef struct gorgo_setting {
    gorgo_text key;
    uint32_t kind; /* GORGO_KIND_NUMBER, _TEXT or _BOOL */
    uint32_t reserved;
    double number;
    gorgo_text text;
} gorgo_setting;

typedef struct gorgo_replica {
    uint32_t id; /* number of the replica in the column `replica` */
    uint32_t reserved;
    gorgo_text name;
    gorgo_text region;
    gorgo_text engine;
} gorgo_replica;

/* Input of `create`. Rows are `replica_size` and `setting_size` bytes apart. */
typedef struct gorgo_setup {
    uint32_t struct_size;
    uint32_t replica_size;
    uint32_t setting_size;
    uint32_t reserved;
    const gorgo_replica *replicas; /* later decisions may include others */
    size_t replica_count;
    const gorgo_setting *settings; /* checked against the declarations, defaults filled in */
    size_t setting_count;
} gorgo_setup;

typedef struct gorgo_request {
    uint32_t struct_size;
    uint32_t prompt_tokens;
    uint32_t max_tokens; /* 0: none stated */
    uint32_t reserved;
    uint64_t body_bytes;
    uint64_t session_hash;
    uint64_t head_hash; /* of the first 256 tokens */
    uint64_t turn;      /* decisions of this policy before this one */
    double slo_ttft_ms; /* TTFT that the client requested, ms; NaN: none */
} gorgo_request;

/* The facts of the candidates. Row i is the same replica in every column; the order of rows has no meaning. Unknown
 * numbers are NaN. */
typedef struct gorgo_columns {
    uint32_t struct_size;
    uint32_t present; /* bits of gorgo_need whose columns are present */
    size_t count;     /* rows; may be 0 */
    const uint32_t *replica;         /* always present */
    const uint8_t *available;        /* always present: 1 or 0 */
    const uint64_t *name_hash;       /* always present */
    const uint64_t *capacity_tokens; /* always present; 0: unknown */
    const double *rtt_ms;            /* RTT */
    const double *rtt_p95_ms;
    const uint32_t *cached_tokens;   /* PREFIX */
    const uint64_t *queued_tokens;   /* LOAD: until the request is complete */
    const uint64_t *queued_tokens_first; /* until its first token */
    const uint64_t *queued_uncached_tokens_completion;
    const uint64_t *queued_uncached_tokens;
    const uint32_t *inflight;
    const uint32_t *decoding;
    const int64_t *inflight_since_report; /* REPORT */
    const double *engine_running;
    const double *engine_waiting;
    const double *kv_used_tokens;
    const double *kv_used_share;
    const double *engine_throughput;
    const double *report_age_ms;
    const double *latency_ms;           /* LATENCY */
    const double *prefill_ms_per_token; /* RATES */
    const double *queue_ms_per_token;
    const double *decode_ms_per_request;
    const double *intercept_ms;
    const double *const *facts; /* those that gorgo_judge names, in its order: facts[i][row] */
    size_t fact_count;
} gorgo_columns;

/* Buffers for the answer. `value` is filled with NaN beforehand: one row that is left out, or is not finite, voids the
 * whole answer. */
typedef struct gorgo_output {
    uint32_t struct_size;
    uint32_t reserved;
    size_t count;
    double *value;  /* a signal in the declared unit; or the excess over the limit as a ratio, 0 if within it */
    uint8_t *known; /* filled with 1 beforehand; 0: unknown, the policy's `unknown` applies */
} gorgo_output;

/* The requests of one arm whose answer began and did not fail, in no particular order. Unknown numbers are NaN: e2e_ms
   if the client left, span_secs if the requests are not from one contiguous period. */
typedef struct gorgo_cohort {
    uint32_t struct_size;
    uint32_t reserved;
    size_t count;
    const double *ttft_ms;
    const double *e2e_ms;
    const double *itl_ms;
    const double *prompt_tokens;
    const double *completion_tokens;
    double span_secs;
    uint64_t failed;
} gorgo_cohort;

/* First part of every descriptor. */
typedef struct gorgo_head {
    uint32_t abi_major;   /* GORGO_ABI_MAJOR */
    uint32_t struct_size; /* bytes of the whole descriptor */
    gorgo_text name;      /* a-z, 0-9, - */
    gorgo_text version;
    gorgo_text summary;
    uint32_t unit;        /* gorgo_unit */
    uint32_t needs;       /* gorgo_need */
    uint32_t flags;       /* gorgo_flag */
    uint32_t option_size; /* sizeof(gorgo_option) */
    const gorgo_option *options;
    size_t option_count;
} gorgo_head;

typedef int32_t gorgo_create_fn(const gorgo_setup *setup, void **instance, gorgo_error *error);
typedef void gorgo_destroy_fn(void *instance);
typedef int32_t gorgo_call_fn(const void *instance, const gorgo_request *request, const gorgo_columns *columns,
                              gorgo_output *output, gorgo_error *error);
typedef int32_t gorgo_measure_fn(const void *instance, const gorgo_cohort *cohort, double *value, gorgo_error *error);

/* Descriptor that gorgo_scorer_v1 and gorgo_constraint_v1 return. */
typedef struct gorgo_judge {
    gorgo_head head;
    gorgo_create_fn *create;
    gorgo_destroy_fn *destroy;
    gorgo_call_fn *call;
    const gorgo_text *facts; /* names of facts to be passed in; NULL if there are none */
    size_t fact_count;
} gorgo_judge;

/* Descriptor that gorgo_objective_v1 returns. */
typedef struct gorgo_objective {
    gorgo_head head;
    gorgo_create_fn *create;
    gorgo_destroy_fn *destroy;
    gorgo_measure_fn *measure;
} gorgo_objective;

GORGO_EXPORT const gorgo_judge *gorgo_scorer_v1(void);
GORGO_EXPORT const gorgo_judge *gorgo_constraint_v1(void);
GORGO_EXPORT const gorgo_objective *gorgo_objective_v1(void);

/* The layout on 64-bit machines, the only ones that gorgo runs on. */
GORGO_STATIC_ASSERT(sizeof(void *) == 8, "64 bits");
GORGO_STATIC_ASSERT(sizeof(gorgo_text) == 16, "gorgo_text");
GORGO_STATIC_ASSERT(sizeof(gorgo_error) == 24, "gorgo_error");
GORGO_STATIC_ASSERT(sizeof(gorgo_option) == 80 && offsetof(gorgo_option, fallback) == 56, "gorgo_option");
GORGO_STATIC_ASSERT(sizeof(gorgo_setting) == 48 && offsetof(gorgo_setting, text) == 32, "gorgo_setting");
GORGO_STATIC_ASSERT(sizeof(gorgo_replica) == 56 && offsetof(gorgo_replica, region) == 24, "gorgo_replica");
GORGO_STATIC_ASSERT(sizeof(gorgo_setup) == 48 && offsetof(gorgo_setup, settings) == 32, "gorgo_setup");
GORGO_STATIC_ASSERT(sizeof(gorgo_request) == 56 && offsetof(gorgo_request, slo_ttft_ms) == 48, "gorgo_request");
GORGO_STATIC_ASSERT(sizeof(gorgo_columns) == 232 && offsetof(gorgo_columns, facts) == 216, "gorgo_columns");
GORGO_STATIC_ASSERT(sizeof(gorgo_output) == 32 && offsetof(gorgo_output, known) == 24, "gorgo_output");
GORGO_STATIC_ASSERT(sizeof(gorgo_cohort) == 72 && offsetof(gorgo_cohort, failed) == 64, "gorgo_cohort");
GORGO_STATIC_ASSERT(sizeof(gorgo_head) == 88 && offsetof(gorgo_head, options) == 72, "gorgo_head");
GORGO_STATIC_ASSERT(sizeof(gorgo_judge) == 128 && offsetof(gorgo_judge, facts) == 112, "gorgo_judge");
GORGO_STATIC_ASSERT(sizeof(gorgo_objective) == 112, "gorgo_objective");

#ifdef __cplusplus
}
#endif

#endif

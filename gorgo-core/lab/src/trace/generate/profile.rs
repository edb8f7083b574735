//! Named workloads. Plain data, each number with its origin.
//!
//! The ART-Chat numbers were fitted to the statistics that the GORGO paper (table 4 and appendix) and its public
//! history report for three 30-minute windows after the filter at 24,000 tokens, and to the arrivals and lengths of the
//! first of them, which are public. Over 12 seeds, the means of rows, users, requests per user, mean input and reuse
//! are within 3 % of the target; the median input is up to 8 % above it; the reuse of Apr 7 is 2 points below.

use super::{Conversations, Independent, MINUTES, WorkloadModel};

/// A named workload.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedProfile {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Average number of requests in 30 minutes; a requested rate is reached by scaling from this.
    pub requests: f64,
    /// Parameters of the workload.
    pub workload: WorkloadModel,
}

impl GeneratedProfile {
    /// Finds a profile by name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        GENERATED.iter().find(|profile| profile.name == name)
    }

    /// Returns the average arrival rate, /s.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.requests / (MINUTES * 60.0)
    }
}

/// Parameters that the three windows have in common. Fitted unless marked otherwise.
const ART_CHAT: Conversations = Conversations {
    probe_rate: 1.275,  // measured: 2,295 rows of 1,800 s
    probe_cv: 1.2,      // measured: 1.21
    probe_tokens: 17.0, // measured
    micro_rate: 0.067,  // measured: 119 rows of fewer than 30 tokens
    micro_users: 20.0,
    micro_tokens: 11.0,
    conversation_rate: 0.60,
    conversation_cv: 0.33,
    redraw_secs: 60.0,
    lead_secs: 900.0,
    users: 880.0,
    user_sigma: 0.6,
    global_prompt_p: 0.30,
    global_prompts: 3.0,
    global_prompt_tokens: 1024.0,
    own_prompt_mu: 6.802_394_763_324_311, // ln 900
    own_prompt_sigma: 1.0,
    own_prompt_most: 6000.0,
    root_scale: 0.99,
    root_skew: 1.0,
    root_least: 121.0, // measured: the shortest row that is neither probe nor tiny
    turn_mu: 0.66,
    turn_sigma: 1.25,
    turn_most: 120.0,
    gap_mu: 1.974_081_026_022_01, // ln 7.2 s: measured on the Apr 1 reconstruction
    gap_sigma: 1.6,
    grow_p: 0.45, // the Apr 1 reconstruction: half of the later requests add nothing
    grow_mu: 4.4,
    grow_sigma: 1.2,
    input_most: 24_000.0, // filter of the windows
    output_least: 16.0,   // the release: near uniform 16 to 128
    output_most: 128.0,
    block_tokens: 256.0, // the release
};

/// All profiles, in documentation order.
pub const GENERATED: &[GeneratedProfile] = &[
    GeneratedProfile {
        name: "art-chat-apr5",
        summary: "ART-Chat, Apr 5 2026 16:15: the GORGO paper's tuning window",
        requests: 7265.0,
        workload: WorkloadModel::Conversations(ART_CHAT),
    },
    GeneratedProfile {
        name: "art-chat-apr6",
        summary: "ART-Chat, Apr 6 2026 15:05",
        requests: 7525.0,
        workload: WorkloadModel::Conversations(Conversations {
            probe_rate: 1.334,
            conversation_rate: 0.63,
            users: 890.0,
            global_prompt_p: 0.45,
            root_scale: 1.01,
            turn_mu: 0.61,
            ..ART_CHAT
        }),
    },
    GeneratedProfile {
        name: "art-chat-apr7",
        summary: "ART-Chat, Apr 7 2026 19:45: longer conversations, shorter first requests",
        requests: 8526.0,
        workload: WorkloadModel::Conversations(Conversations {
            probe_rate: 1.095,
            conversation_rate: 0.50,
            users: 880.0,
            global_prompt_p: 0.50,
            root_scale: 1.05,
            root_skew: 1.45,
            turn_mu: 1.25,
            grow_mu: 4.2,
            ..ART_CHAT
        }),
    },
    GeneratedProfile {
        name: "wildchat",
        summary: "WildChat-4.8M, the first window that GORGO's authors replayed: almost no reuse",
        requests: 20_520.0, // 11.4/s
        workload: WorkloadModel::Independent(Independent {
            rate: 11.4,           // published
            input_mu: 5.25,       // 5.20 solved from the published mean and blocks per row; +0.05 for the pool
            input_sigma: 1.78,    // solved
            input_most: 24_000.0, // the filter
            pool_p: 0.075,        // from the published block reuse and share of unique tokens
            pool: 400.0,
            pool_mu: 5.2,
            pool_sigma: 1.5,
            pool_exponent: 1.0,
            output_mean: 329.0, // published
            output_sigma: 0.9,  // not published; chat answers have a spread of this order
            output_most: 4096.0,
            block_tokens: 512.0, // the published windows' blocks
        }),
    },
    GeneratedProfile {
        name: "lmsys",
        summary: "LMSYS-Chat-1M, the first window that GORGO's authors replayed: many short prompts",
        requests: 108_000.0, // 60/s
        workload: WorkloadModel::Independent(Independent {
            rate: 60.0,        // published
            input_mu: 4.45,    // 4.40 solved; +0.05 for the pool
            input_sigma: 1.54, // solved
            input_most: 24_000.0,
            pool_p: 0.11,
            pool: 1500.0,
            pool_mu: 3.6,
            pool_sigma: 1.0,
            pool_exponent: 1.0,
            output_mean: 182.0, // published
            output_sigma: 0.9,  // as above
            output_most: 4096.0,
            block_tokens: 512.0,
        }),
    },
    GeneratedProfile {
        name: "hot",
        summary: "art-chat-apr5 with one prompt of 6,000 tokens at the start of every conversation",
        requests: 7265.0,
        workload: WorkloadModel::Conversations(Conversations {
            global_prompt_p: 1.0,
            global_prompts: 1.0,
            global_prompt_tokens: 6000.0,
            ..ART_CHAT
        }),
    },
];

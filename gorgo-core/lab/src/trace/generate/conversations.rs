//! Conversations: users whose requests resend and slowly extend one prompt, plus a probe and tiny requests. Models the
//! ART-Chat windows of the GORGO paper.
//!
//! Properties of the real windows that are reproduced: a third of the requests are one user's probe of 17 tokens; the
//! first request of a conversation is nearly all fresh, and later ones add little (half of them nothing), so reuse is
//! about 1 − 1/(requests per conversation); arrivals are nearly Poisson with a slow drift. Not modelled: context
//! compaction, conversations that fork, and the long requests that the filter of the windows removed.

use std::collections::HashMap;
use std::sync::Arc;

use super::blocks::BlockIds;
use super::draw::{WorkloadRng, micros, millis, whole};
use super::parameter::parameters;
use super::trace;
use crate::trace::{RecordedTrace, TraceRow};

parameters! {
    /// Parameters of a workload of conversations. Counts and numbers of tokens are rounded to whole numbers.
    Conversations {
        probe_rate: "/s", 0.0, 1e5, "rate of requests of the probe user, whose prompt is always the same";
        probe_cv: "1", 0.0, 50.0, "coefficient of variation of the probe's gaps (gamma; 1 is Poisson)";
        probe_tokens: "tokens", 1.0, 1e6, "length of the probe's prompt";
        micro_rate: "/s", 0.0, 1e5, "rate of tiny requests of all micro users together (Poisson)";
        micro_users: "users", 1.0, 1e6, "number of users that send tiny requests";
        micro_tokens: "tokens", 1.0, 1e6, "length of a tiny request's prompt";
        conversation_rate: "/s", 0.0, 1e5, "average rate at which conversations start";
        conversation_cv: "1", 0.0, 50.0, "coefficient of variation of that rate (gamma, redrawn regularly)";
        redraw_secs: "s", 1.0, 1e6, "time until the rate of conversations is redrawn";
        lead_secs: "s", 0.0, 1e6, "time before the window from which conversations start, so that some are under way";
        users: "users", 1.0, 1e7, "number of users that have conversations";
        user_sigma: "1", 0.0, 10.0, "spread of the users' activity (lognormal weights)";
        global_prompt_p: "share", 0.0, 1.0, "share of users whose prompts begin with one of the global prompts";
        global_prompts: "prompts", 1.0, 1e6, "number of different global prompts";
        global_prompt_tokens: "tokens", 1.0, 1e6, "length of a global prompt";
        own_prompt_mu: "ln tokens", 0.0, 16.0, "length of a user's own prompt: logarithm of the median";
        own_prompt_sigma: "1", 0.0, 10.0, "length of a user's own prompt: spread (lognormal)";
        own_prompt_most: "tokens", 1.0, 1e6, "length of a user's own prompt: maximum";
        root_scale: "1", 0.01, 100.0, "factor on the length of a conversation's first request";
        root_skew: "1", 0.01, 100.0, "exponent on the quantile of that length: above 1, first requests are shorter";
        root_least: "tokens", 1.0, 1e6, "minimum length of a conversation's first request";
        turn_mu: "ln requests", -10.0, 12.0, "further requests of a conversation: logarithm of the median";
        turn_sigma: "1", 0.0, 10.0, "further requests of a conversation: spread (lognormal)";
        turn_most: "requests", 0.0, 1e6, "further requests of a conversation: maximum";
        gap_mu: "ln s", -10.0, 16.0, "time between a conversation's requests: logarithm of the median";
        gap_sigma: "1", 0.0, 10.0, "time between a conversation's requests: spread (lognormal)";
        grow_p: "share", 0.0, 1.0, "share of later requests that extend the prompt; the others resend it";
        grow_mu: "ln tokens", -10.0, 16.0, "growth of an extended prompt: logarithm of the median";
        grow_sigma: "1", 0.0, 10.0, "growth of an extended prompt: spread (lognormal)";
        input_most: "tokens", 1.0, 1e6, "longest prompt; a conversation ends before it exceeds this";
        output_least: "tokens", 0.0, 1e6, "shortest answer";
        output_most: "tokens", 0.0, 1e6, "longest answer (uniform in between)";
        block_tokens: "tokens", 1.0, 1e6, "tokens per block id";
    }
}

/// Length of a conversation's first request, tokens, by quantile: the 4,781 rows of the Apr 5 window that are neither
/// probe nor tiny, measured on their arrivals. Linear between the points.
const FIRST_LENGTHS: &[(f64, f64)] = &[
    (0.0, 121.0),
    (0.01, 159.0),
    (0.025, 437.0),
    (0.05, 2294.0),
    (0.10, 3405.0),
    (0.15, 4092.0),
    (0.20, 4891.0),
    (0.25, 5633.0),
    (0.30, 6500.0),
    (0.40, 8409.0),
    (0.50, 9540.0),
    (0.60, 11_020.0),
    (0.70, 12_742.0),
    (0.75, 13_603.0),
    (0.80, 14_987.0),
    (0.85, 16_817.0),
    (0.90, 18_466.0),
    (0.95, 20_813.0),
    (0.975, 22_378.0),
    (0.99, 23_391.0),
    (1.0, 23_857.0),
];

/// Author of a piece of a prompt; also identifies a user or a conversation that has exactly one author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum TextCreator {
    Probe,
    Micro(u32),
    Global(u32),
    User(u32),
    Conversation(u32),
}

/// Beginning of a user's prompts.
#[derive(Debug, Clone, Copy)]
struct PromptHead {
    creator: TextCreator,
    tokens: u32,
}

/// A request before rows are sorted and numbered.
#[derive(Debug, Clone, Copy)]
struct RequestDraft {
    at_us: u64,
    user: TextCreator,
    conversation: TextCreator,
    head: PromptHead,
    tokens: u32,
    output: u32,
}

pub(super) fn generate(numbers: &Conversations, seed: u64, minutes: f64) -> RecordedTrace {
    let window_secs = minutes * 60.0;
    let mut draw = WorkloadRng::new(seed);
    let mut drafts = Vec::new();
    probe(numbers, window_secs, &mut draw, &mut drafts);
    micro(numbers, window_secs, &mut draw, &mut drafts);
    conversations(numbers, window_secs, &mut draw, &mut drafts);
    // The three kinds of requests were drawn one after another; merge them by time.
    drafts.sort_by_key(|draft| (draft.at_us, draft.conversation));

    let mut ids = BlockIds::new(whole(numbers.block_tokens));
    let (mut users, mut names) = (CreatorNames::default(), CreatorNames::default());
    let mut turns: HashMap<TextCreator, u32> = HashMap::new();
    let rows = drafts.into_iter().map(|draft| {
        // Numbered after sorting, so turns count the requests within the window only.
        let turn = turns.entry(draft.conversation).or_default();
        *turn += 1;
        TraceRow {
            at_ms: millis(draft.at_us),
            input_tokens: draft.tokens,
            output_tokens: draft.output,
            blocks: ids.ids_for_prompt(draft.tokens, draft.head.creator, draft.head.tokens, draft.conversation),
            user: Some(users.name(draft.user)),
            conversation: Some(names.name(draft.conversation)),
            turn: Some(*turn),
            ..TraceRow::default()
        }
    });
    trace(rows.collect(), whole(numbers.block_tokens))
}

/// Names of users or conversations: numbers in order of first appearance.
#[derive(Default)]
struct CreatorNames(HashMap<TextCreator, Arc<str>>);

impl CreatorNames {
    fn name(&mut self, creator: TextCreator) -> Arc<str> {
        let next = self.0.len();
        Arc::clone(self.0.entry(creator).or_insert_with(|| next.to_string().into()))
    }
}

fn output(numbers: &Conversations, draw: &mut WorkloadRng) -> u32 {
    draw.between(whole(numbers.output_least), whole(numbers.output_most))
}

fn probe(numbers: &Conversations, window_secs: f64, draw: &mut WorkloadRng, drafts: &mut Vec<RequestDraft>) {
    if numbers.probe_rate <= 0.0 {
        return;
    }
    let tokens = whole(numbers.probe_tokens);
    let mut at = 0.0;
    loop {
        at += draw.gamma(1.0 / numbers.probe_rate, numbers.probe_cv);
        if at >= window_secs {
            return;
        }
        // The probe is user, conversation and author of its prompt all in one.
        let (user, head) = (TextCreator::Probe, PromptHead { creator: TextCreator::Probe, tokens });
        let output = output(numbers, draw);
        drafts.push(RequestDraft { at_us: micros(at), user, conversation: user, head, tokens, output });
    }
}

fn micro(numbers: &Conversations, window_secs: f64, draw: &mut WorkloadRng, drafts: &mut Vec<RequestDraft>) {
    if numbers.micro_rate <= 0.0 {
        return;
    }
    let tokens = whole(numbers.micro_tokens);
    let mut at = 0.0;
    loop {
        at += draw.exponential(1.0 / numbers.micro_rate);
        if at >= window_secs {
            return;
        }
        let user = TextCreator::Micro(draw.between(1, whole(numbers.micro_users)));
        let head = PromptHead { creator: user, tokens };
        let output = output(numbers, draw);
        drafts.push(RequestDraft { at_us: micros(at), user, conversation: user, head, tokens, output });
    }
}

fn conversations(numbers: &Conversations, window_secs: f64, draw: &mut WorkloadRng, drafts: &mut Vec<RequestDraft>) {
    if numbers.conversation_rate <= 0.0 {
        return;
    }
    // Drawn before any conversation: the rate of conversations does not change who the users are.
    let users = UserPopulation::draw(numbers, draw);
    let mut count = 0;
    let mut period = -numbers.lead_secs;
    while period < window_secs {
        let end = (period + numbers.redraw_secs).min(window_secs);
        let rate = numbers.conversation_rate * draw.gamma(1.0, numbers.conversation_cv);
        let mut at = period;
        loop {
            // A drawn rate can be almost 0; the bound keeps the gap finite.
            at += draw.exponential(1.0 / rate.max(1e-9));
            if at >= end {
                break;
            }
            conversation(numbers, (at, window_secs), (count, &users), draw, drafts);
            count += 1;
        }
        period = end;
    }
}

/// Draws one conversation, which starts at `begun` seconds; requests outside the window are not kept.
fn conversation(
    numbers: &Conversations,
    (begun, window_secs): (f64, f64),
    (name, users): (u32, &UserPopulation),
    draw: &mut WorkloadRng,
    drafts: &mut Vec<RequestDraft>,
) {
    let (user, head) = users.one(draw);
    let quantile = draw.uniform().powf(numbers.root_skew);
    let first = (first_length(quantile) * numbers.root_scale).max(numbers.root_least);
    let mut tokens = whole(first.min(numbers.input_most));
    let further = draw.lognormal(numbers.turn_mu, numbers.turn_sigma).min(numbers.turn_most).floor();
    let mut at = begun;
    for request in 0..=whole(further) {
        if request > 0 {
            at += draw.lognormal(numbers.gap_mu, numbers.gap_sigma);
            if draw.chance(numbers.grow_p) {
                let grown = draw.lognormal(numbers.grow_mu, numbers.grow_sigma).round().max(1.0);
                tokens = tokens.saturating_add(whole(grown));
            }
        }
        // Drawn before the window is checked: requests outside it use up the same random numbers as others.
        let output = output(numbers, draw);
        // A conversation ends with the window, or before its prompt would exceed the limit.
        if at >= window_secs || f64::from(tokens) > numbers.input_most {
            return;
        }
        // Before 0 a conversation grows without being recorded, so that some are under way when the window begins.
        if at >= 0.0 {
            let conversation = TextCreator::Conversation(name);
            drafts.push(RequestDraft { at_us: micros(at), user, conversation, head, tokens, output });
        }
    }
}

/// Returns the length of a first request at a quantile, tokens.
fn first_length(quantile: f64) -> f64 {
    // The clamp keeps both neighbours inside the table for the quantiles 0 and 1.
    let above = FIRST_LENGTHS.partition_point(|(at, _)| *at <= quantile).clamp(1, FIRST_LENGTHS.len() - 1);
    let ((low, short), (high, long)) = (FIRST_LENGTHS[above - 1], FIRST_LENGTHS[above]);
    short + (long - short) * (quantile - low) / (high - low)
}

/// Users of conversations, with the beginning of their prompts and their activity.
struct UserPopulation {
    heads: Vec<PromptHead>,
    /// Sum of the weights up to and including each user.
    cumulated: Vec<f64>,
}

impl UserPopulation {
    fn draw(numbers: &Conversations, draw: &mut WorkloadRng) -> Self {
        let mut heads = Vec::new();
        let mut cumulated = Vec::new();
        let mut sum = 0.0;
        for user in 0..whole(numbers.users) {
            sum += draw.lognormal(0.0, numbers.user_sigma);
            cumulated.push(sum);
            heads.push(if draw.chance(numbers.global_prompt_p) {
                let prompt = draw.between(1, whole(numbers.global_prompts));
                PromptHead { creator: TextCreator::Global(prompt), tokens: whole(numbers.global_prompt_tokens) }
            } else {
                let own = draw.lognormal(numbers.own_prompt_mu, numbers.own_prompt_sigma);
                PromptHead { creator: TextCreator::User(user), tokens: whole(own.min(numbers.own_prompt_most)).max(1) }
            });
        }
        Self { heads, cumulated }
    }

    fn one(&self, draw: &mut WorkloadRng) -> (TextCreator, PromptHead) {
        let total = self.cumulated.last().copied().unwrap_or_default();
        // Inverse of the cumulative weights: a user is drawn with a probability proportional to its weight.
        let point = draw.uniform() * total;
        let user = self.cumulated.partition_point(|sum| *sum <= point).min(self.heads.len().saturating_sub(1));
        let name = TextCreator::User(u32::try_from(user).unwrap_or(u32::MAX));
        let head = self.heads.get(user).copied().unwrap_or(PromptHead { creator: name, tokens: 0 });
        (name, head)
    }
}

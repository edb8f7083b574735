//! Conversations: users whose requests resend and slowly grow one prompt, beside a probe and tiny requests. The model
//! of the ART-Chat windows of the GORGO paper.
//!
//! What the real windows show and this keeps: a third of the requests are one user's probe of 17 tokens; a
//! conversation's first request is nearly all fresh, its later ones add little (half of them nothing), so reuse is
//! about 1 − 1/(requests per conversation); arrivals are nearly Poisson with a slow drift. Not modelled: context
//! compaction, conversations that fork, and the long requests that the windows' filter removed.

use std::collections::HashMap;
use std::sync::Arc;

use super::blocks::BlockIds;
use super::draw::{Draw, micros, millis, whole};
use super::parameter::parameters;
use super::trace;
use crate::trace::{Trace, TraceRow};

parameters! {
    /// The numbers of a workload of conversations. Counts and token numbers are rounded to whole ones.
    Conversations {
        probe_rate: "/s", 0.0, 1e5, "requests of the probe user, whose prompt is always the same";
        probe_cv: "1", 0.0, 50.0, "coefficient of variation of the probe's gaps (gamma; 1 is Poisson)";
        probe_tokens: "tokens", 1.0, 1e6, "the probe's prompt";
        micro_rate: "/s", 0.0, 1e5, "tiny requests of all micro users together (Poisson)";
        micro_users: "users", 1.0, 1e6, "users of tiny requests";
        micro_tokens: "tokens", 1.0, 1e6, "a tiny request's prompt";
        conversation_rate: "/s", 0.0, 1e5, "conversations begun, on average";
        conversation_cv: "1", 0.0, 50.0, "coefficient of variation of that rate (gamma, redrawn)";
        redraw_secs: "s", 1.0, 1e6, "how long one rate of conversations holds";
        lead_secs: "s", 0.0, 1e6, "how long before the window conversations begin, so that some are under way";
        users: "users", 1.0, 1e7, "users that a conversation may belong to";
        user_sigma: "1", 0.0, 10.0, "spread of the users' activity (lognormal weights)";
        global_prompt_p: "share", 0.0, 1.0, "users whose prompts begin with a global prompt, in place of their own";
        global_prompts: "prompts", 1.0, 1e6, "different global prompts";
        global_prompt_tokens: "tokens", 1.0, 1e6, "length of a global prompt";
        own_prompt_mu: "ln tokens", 0.0, 16.0, "length of a user's own prompt: logarithm of its median";
        own_prompt_sigma: "1", 0.0, 10.0, "and its spread (lognormal)";
        own_prompt_most: "tokens", 1.0, 1e6, "and its largest";
        root_scale: "1", 0.01, 100.0, "factor on the length of a conversation's first request";
        root_skew: "1", 0.01, 100.0, "exponent on its quantile: above 1 is shorter";
        root_least: "tokens", 1.0, 1e6, "its least length";
        turn_mu: "ln requests", -10.0, 12.0, "further requests of a conversation: logarithm of their median";
        turn_sigma: "1", 0.0, 10.0, "and their spread (lognormal)";
        turn_most: "requests", 0.0, 1e6, "and their largest number";
        gap_mu: "ln s", -10.0, 16.0, "time between a conversation's requests: logarithm of its median";
        gap_sigma: "1", 0.0, 10.0, "and its spread (lognormal)";
        grow_p: "share", 0.0, 1.0, "later requests that are longer than the one before; the others resend it";
        grow_mu: "ln tokens", -10.0, 16.0, "by how much: logarithm of the median";
        grow_sigma: "1", 0.0, 10.0, "and its spread (lognormal)";
        input_most: "tokens", 1.0, 1e6, "longest prompt; a conversation ends before it gets longer";
        output_least: "tokens", 0.0, 1e6, "shortest answer";
        output_most: "tokens", 0.0, 1e6, "longest answer (uniform between)";
        block_tokens: "tokens", 1.0, 1e6, "tokens per block id";
    }
}

/// Length of a first request, tokens, by quantile: the 4,781 rows of the Apr 5 window that are neither probe nor tiny,
/// measured on their arrivals. Linear between.
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

/// Who wrote a piece of a prompt; also who a user or a conversation is, where they have one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Creator {
    Probe,
    Micro(u32),
    Global(u32),
    User(u32),
    Conversation(u32),
}

/// How a user's prompts begin.
#[derive(Debug, Clone, Copy)]
struct Head {
    creator: Creator,
    tokens: u32,
}

/// A request before rows are numbered.
#[derive(Debug, Clone, Copy)]
struct Draft {
    at_us: u64,
    user: Creator,
    conversation: Creator,
    head: Head,
    tokens: u32,
    output: u32,
}

pub(super) fn generate(numbers: &Conversations, seed: u64, minutes: f64) -> Trace {
    let window_secs = minutes * 60.0;
    let mut draw = Draw::new(seed);
    let mut drafts = Vec::new();
    probe(numbers, window_secs, &mut draw, &mut drafts);
    micro(numbers, window_secs, &mut draw, &mut drafts);
    conversations(numbers, window_secs, &mut draw, &mut drafts);
    drafts.sort_by_key(|draft| (draft.at_us, draft.conversation));

    let mut ids = BlockIds::new(whole(numbers.block_tokens));
    let (mut users, mut names) = (Numbers::default(), Numbers::default());
    let mut turns: HashMap<Creator, u32> = HashMap::new();
    let rows = drafts.into_iter().map(|draft| {
        let turn = turns.entry(draft.conversation).or_default();
        *turn += 1;
        TraceRow {
            at_ms: millis(draft.at_us),
            input_tokens: draft.tokens,
            output_tokens: draft.output,
            blocks: ids.of(draft.tokens, draft.head.creator, draft.head.tokens, draft.conversation),
            user: Some(users.of(draft.user)),
            conversation: Some(names.of(draft.conversation)),
            turn: Some(*turn),
            ..TraceRow::default()
        }
    });
    trace(rows.collect(), whole(numbers.block_tokens))
}

/// Names: numbers in the order of first appearance.
#[derive(Default)]
struct Numbers(HashMap<Creator, Arc<str>>);

impl Numbers {
    fn of(&mut self, creator: Creator) -> Arc<str> {
        let next = self.0.len();
        Arc::clone(self.0.entry(creator).or_insert_with(|| next.to_string().into()))
    }
}

fn output(numbers: &Conversations, draw: &mut Draw) -> u32 {
    draw.between(whole(numbers.output_least), whole(numbers.output_most))
}

fn probe(numbers: &Conversations, window_secs: f64, draw: &mut Draw, drafts: &mut Vec<Draft>) {
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
        let (user, head) = (Creator::Probe, Head { creator: Creator::Probe, tokens });
        let output = output(numbers, draw);
        drafts.push(Draft { at_us: micros(at), user, conversation: user, head, tokens, output });
    }
}

fn micro(numbers: &Conversations, window_secs: f64, draw: &mut Draw, drafts: &mut Vec<Draft>) {
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
        let user = Creator::Micro(draw.between(1, whole(numbers.micro_users)));
        let head = Head { creator: user, tokens };
        let output = output(numbers, draw);
        drafts.push(Draft { at_us: micros(at), user, conversation: user, head, tokens, output });
    }
}

fn conversations(numbers: &Conversations, window_secs: f64, draw: &mut Draw, drafts: &mut Vec<Draft>) {
    if numbers.conversation_rate <= 0.0 {
        return;
    }
    let users = Users::draw(numbers, draw);
    let mut count = 0;
    let mut period = -numbers.lead_secs;
    while period < window_secs {
        let end = (period + numbers.redraw_secs).min(window_secs);
        let rate = numbers.conversation_rate * draw.gamma(1.0, numbers.conversation_cv);
        let mut at = period;
        loop {
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

/// One conversation, begun at `at` seconds; what falls outside the window is not kept.
fn conversation(
    numbers: &Conversations,
    (begun, window_secs): (f64, f64),
    (name, users): (u32, &Users),
    draw: &mut Draw,
    drafts: &mut Vec<Draft>,
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
        let output = output(numbers, draw);
        if at >= window_secs || f64::from(tokens) > numbers.input_most {
            return;
        }
        if at >= 0.0 {
            let conversation = Creator::Conversation(name);
            drafts.push(Draft { at_us: micros(at), user, conversation, head, tokens, output });
        }
    }
}

/// Length of a first request at a quantile, tokens.
fn first_length(quantile: f64) -> f64 {
    let above = FIRST_LENGTHS.partition_point(|(at, _)| *at <= quantile).clamp(1, FIRST_LENGTHS.len() - 1);
    let ((low, short), (high, long)) = (FIRST_LENGTHS[above - 1], FIRST_LENGTHS[above]);
    short + (long - short) * (quantile - low) / (high - low)
}

/// The users of conversations: how their prompts begin, and how active they are.
struct Users {
    heads: Vec<Head>,
    /// Sum of the weights up to and with each user.
    cumulated: Vec<f64>,
}

impl Users {
    fn draw(numbers: &Conversations, draw: &mut Draw) -> Self {
        let mut heads = Vec::new();
        let mut cumulated = Vec::new();
        let mut sum = 0.0;
        for user in 0..whole(numbers.users) {
            sum += draw.lognormal(0.0, numbers.user_sigma);
            cumulated.push(sum);
            heads.push(if draw.chance(numbers.global_prompt_p) {
                let prompt = draw.between(1, whole(numbers.global_prompts));
                Head { creator: Creator::Global(prompt), tokens: whole(numbers.global_prompt_tokens) }
            } else {
                let own = draw.lognormal(numbers.own_prompt_mu, numbers.own_prompt_sigma);
                Head { creator: Creator::User(user), tokens: whole(own.min(numbers.own_prompt_most)).max(1) }
            });
        }
        Self { heads, cumulated }
    }

    fn one(&self, draw: &mut Draw) -> (Creator, Head) {
        let total = self.cumulated.last().copied().unwrap_or_default();
        let point = draw.uniform() * total;
        let user = self.cumulated.partition_point(|sum| *sum <= point).min(self.heads.len().saturating_sub(1));
        let name = Creator::User(u32::try_from(user).unwrap_or(u32::MAX));
        let head = self.heads.get(user).copied().unwrap_or(Head { creator: name, tokens: 0 });
        (name, head)
    }
}

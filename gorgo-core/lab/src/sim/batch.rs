//! Scheduler: which requests run and what the next step computes. Continuous batching, first come, first served.
//!
//! A request is admitted if a slot is free and the KV cache has room for its prompt, for its own answer, and for a
//! share of what the running requests may still generate (the reserve). No request overtakes one that waits for room.
//! If room runs out nevertheless, the request that has generated least is retracted: it returns its pages and waits at
//! the head of the queue to be computed again.

use std::collections::VecDeque;

use super::PAGE_TOKENS;
use super::cache::PagedKvCache;
use super::job::ScheduledRequest;
use super::profile::{AnswerReserve, EngineProfile, StepSchedule};

/// Work of the GPU in one step. Requests are indices into [`BatchScheduler::running`], which does not change during a step.
#[derive(Debug, Default)]
pub(super) struct StepPlan {
    /// Requests that generate a token by decoding.
    pub(super) decode: Vec<usize>,
    /// Requests whose prompt is computed, with the number of its tokens.
    pub(super) prefill: Vec<(usize, u32)>,
}

impl StepPlan {
    pub(super) fn is_empty(&self) -> bool {
        self.decode.is_empty() && self.prefill.is_empty()
    }

    /// Returns the time that the step takes, ms.
    pub(super) fn millis(&self, profile: &EngineProfile, running: &[ScheduledRequest]) -> f64 {
        let prefill = match self.prefill.iter().map(|part| part.1).fold(0_u32, u32::saturating_add) {
            // A batch has a fixed cost, which a step without prompts must not pay.
            0 => 0.0,
            tokens => profile.prefill_ms(tokens),
        };
        let decode = match u32::try_from(self.decode.len()).unwrap_or(u32::MAX) {
            0 => 0.0,
            batch => {
                let held = self.decode.iter().map(|&at| running[at].length()).fold(0_u32, u32::saturating_add);
                profile.decode_ms(batch, held)
            }
        };
        prefill + decode
    }
}

/// Requests inside the scheduler.
#[derive(Debug)]
pub(super) struct BatchScheduler {
    pub(super) waiting: VecDeque<ScheduledRequest>,
    pub(super) running: Vec<ScheduledRequest>,
    /// Number of retractions so far.
    pub(super) retractions: u64,
    reserve_share: f64,
}

impl BatchScheduler {
    pub(super) fn new(reserve: AnswerReserve) -> Self {
        Self { waiting: VecDeque::new(), running: Vec::new(), retractions: 0, reserve_share: reserve.start }
    }

    /// Plans the next step; the plan is empty if there is nothing to do.
    pub(super) fn plan(&mut self, profile: &EngineProfile, cache: &mut PagedKvCache) -> StepPlan {
        if self.running.is_empty() {
            // SGLang resets its ratio when it is idle.
            self.reserve_share = profile.reserve.start;
        }
        let mut plan = StepPlan::default();
        match profile.schedule {
            StepSchedule::PrefillFirst => {
                self.fill_with_prompts(profile, cache, profile.chunk_tokens, &mut plan);
                if plan.prefill.is_empty() {
                    self.decode_all(profile, cache, &mut plan);
                }
            }
            StepSchedule::Mixed => {
                self.decode_all(profile, cache, &mut plan);
                let decoding = u32::try_from(plan.decode.len()).unwrap_or(u32::MAX);
                // At least one prompt token per step, or prompts would starve if the batch is as large as the chunk.
                self.fill_with_prompts(profile, cache, profile.chunk_tokens.saturating_sub(decoding).max(1), &mut plan);
            }
        }
        plan
    }

    /// Puts up to `budget` prompt tokens into the plan: first of requests that are under way, then of new ones.
    fn fill_with_prompts(
        &mut self,
        profile: &EngineProfile,
        cache: &mut PagedKvCache,
        mut budget: u32,
        plan: &mut StepPlan,
    ) {
        // Running requests are in order of admission, so a long prompt is finished before a later one gets a chunk.
        for (at, request) in self.running.iter().enumerate().filter(|(_, request)| !request.decodes()) {
            let tokens = (request.target - request.computed).min(budget);
            if tokens > 0 {
                plan.prefill.push((at, tokens));
                budget -= tokens;
            }
        }
        while budget > 0 && self.admit_next(profile, cache) {
            let at = self.running.len() - 1;
            let request = &self.running[at];
            let tokens = (request.target - request.computed).min(budget);
            plan.prefill.push((at, tokens));
            budget -= tokens;
        }
    }

    /// Moves the head of the queue to the running requests, with pages for all it has to compute, if it can run now.
    fn admit_next(&mut self, profile: &EngineProfile, cache: &mut PagedKvCache) -> bool {
        if self.running.len() >= usize::try_from(profile.max_running).unwrap_or(usize::MAX) {
            return false;
        }
        // Only the head is considered: a smaller request that overtook it could keep it waiting forever.
        let Some(next) = self.waiting.front() else { return false };
        // The last token is always computed, since the next token is generated from it.
        let searchable = usize::try_from((next.target - 1) / PAGE_TOKENS).unwrap_or(usize::MAX).min(next.chain.len());
        let (hit_pages, hit_idle) = cache.find(&next.chain[..searchable]);
        let own_pages = next.target.div_ceil(PAGE_TOKENS) - hit_pages;
        // Idle pages that this request would pin stop being available, but do not have to be taken.
        let room = cache.available().saturating_sub(hit_idle);
        // If nothing runs, waiting frees no more pages: a request whose prompt fits must be admitted.
        let answers = if self.running.is_empty() { 0 } else { self.answer_pages(profile.reserve, next) };
        if own_pages.saturating_add(answers) > room {
            return false;
        }
        let Some(mut next) = self.waiting.pop_front() else { return false };
        next.shared_pages = hit_pages;
        cache.pin(next.pinned());
        if !cache.take(own_pages) {
            // Unreachable, since the room was counted above. If it happened, the request would stay in the queue.
            cache.release(next.pinned(), 0);
            next.shared_pages = 0;
            self.waiting.push_front(next);
            return false;
        }
        next.private_pages = own_pages;
        next.computed = hit_pages * PAGE_TOKENS;
        // Only the first admission counts: after a retraction the request would find its own pages.
        next.cached_tokens.get_or_insert(next.computed);
        self.running.push(next);
        true
    }

    /// Returns the pages to leave free for answers when `next` is admitted: its own whole answer and a share of what
    /// the others may still generate.
    fn answer_pages(&self, reserve: AnswerReserve, next: &ScheduledRequest) -> u32 {
        let rest = |request: &ScheduledRequest| {
            f64::from((request.max_tokens - request.generated).min(reserve.longest_answer))
        };
        let tokens = rest(next) + self.reserve_share * self.running.iter().map(rest).sum::<f64>();
        ceil_to_u32(tokens / f64::from(PAGE_TOKENS))
    }

    /// Puts all decoding requests into the plan, with a page for each that needs one; retracts requests if pages run
    /// out.
    fn decode_all(&mut self, profile: &EngineProfile, cache: &mut PagedKvCache, plan: &mut StepPlan) {
        // This ends: each round without room removes a request, and with none left no page is needed.
        loop {
            // Counted anew in each round: a retraction also removes the need of the retracted request.
            let needed = self.running.iter().filter(|request| needs_page(request)).count();
            let needed = u32::try_from(needed).unwrap_or(u32::MAX);
            if cache.take(needed) {
                break;
            }
            self.retract_one(profile.reserve, cache);
        }
        for (at, request) in self.running.iter_mut().enumerate().filter(|(_, request)| request.decodes()) {
            if needs_page(request) {
                request.private_pages += 1;
            }
            plan.decode.push(at);
        }
        if !plan.decode.is_empty() {
            // The share falls by one step per decode step, as in SGLang.
            let sink = (profile.reserve.start - profile.reserve.least) / f64::from(profile.reserve.steps.max(1));
            self.reserve_share = (self.reserve_share - sink).max(profile.reserve.least);
        }
    }

    /// Retracts the request that has generated least; among several, the one with the longest prompt, then the latest.
    fn retract_one(&mut self, reserve: AnswerReserve, cache: &mut PagedKvCache) {
        let least = self.running.iter().enumerate().min_by_key(|(at, request)| {
            (request.generated, std::cmp::Reverse(request.prompt_tokens), std::cmp::Reverse(*at))
        });
        let Some((at, _)) = least else { return };
        let mut request = self.running.remove(at);
        cache.release(request.pinned(), request.private_pages);
        request.shared_pages = 0;
        request.private_pages = 0;
        request.computed = 0;
        // What was generated is kept: it is computed again together with the prompt, not generated again.
        request.target = request.length();
        self.waiting.push_front(request);
        self.retractions += 1;
        // As in SGLang: the share had fallen too low for the answers that followed.
        self.reserve_share = reserve.start;
    }
}

/// Reports whether the next decode step of a request writes into a page that the request does not have yet.
fn needs_page(request: &ScheduledRequest) -> bool {
    request.decodes() && request.length().div_ceil(PAGE_TOKENS) > request.held_pages()
}

/// Rounds up to a whole number, within the range of `u32`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped on the same line")]
fn ceil_to_u32(value: f64) -> u32 {
    value.ceil().clamp(0.0, f64::from(u32::MAX)) as u32
}

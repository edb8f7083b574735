//! The simulated engine: jobs in, tokens out, on virtual time.
//!
//! The GPU runs one step after another: [`BatchScheduler`] chooses the step and [`EngineProfile`] determines how long it takes. The
//! model is that of an SGLang or vLLM scheduler: continuous batching with a request limit, chunked prefill in order of
//! arrival, a decode step that grows with the batch, and a paged KV cache shared by running requests and cached
//! prefixes.
//!
//! The caller calls [`SimulatedEngine::advance`] whenever [`SimulatedEngine::next_event`] is due. A late call changes no times: each step
//! starts when the one before it ended.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::PAGE_TOKENS;
use super::batch::{BatchScheduler, StepPlan};
use super::cache::PagedKvCache;
use super::job::{EngineOutput, FinishReason, ScheduledRequest, SimulatedRequest};
use super::profile::EngineProfile;
use gorgo_routing::model::UnixMicros;

/// Decode steps over which the throughput on the metrics page is measured, as in SGLang.
const THROUGHPUT_STEPS: u32 = 40;

/// Shortest step, µs. A step always takes time, however fast the engine is, so that every call of `advance` ends.
const SHORTEST_STEP_US: f64 = 1.0;

/// Longest step, µs: a year.
const LONGEST_STEP_US: f64 = 3.2e13;

/// Reason why an engine cannot be created or cannot take a job.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// The profile is invalid.
    #[error("invalid engine profile: {0}")]
    Profile(&'static str),
    /// The speed is out of range.
    #[error("engine speed is {0}; must be a number from 0.000001 to 1000000")]
    Speed(f64),
    /// The engine already has a job with that id.
    #[error("job {0} is already in the engine")]
    LiveId(u64),
}

/// Counters of the engine since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineTotals {
    /// Jobs submitted.
    pub submitted: u64,
    /// Jobs finished, not counting refused ones.
    pub finished: u64,
    /// Jobs cancelled.
    pub cancelled: u64,
    /// Jobs refused as too long.
    pub refused: u64,
    /// Prompt tokens of admitted jobs.
    pub prompt_tokens: u64,
    /// Of these, tokens that were found in the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Number of times that a running job had to return its pages.
    pub retractions: u64,
    /// Sum of the times from submission to the computed prompt, µs.
    pub prefilled_us: u64,
    /// Number of prompts computed.
    pub prefilled: u64,
}

/// State of the engine as a metrics page reports it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineStats {
    /// Running requests.
    pub running: u32,
    /// Waiting requests.
    pub waiting: u32,
    /// KV tokens in use by running requests (whole pages).
    pub used_tokens: u32,
    /// KV tokens that are only in the prefix cache.
    pub cached_tokens: u32,
    /// KV capacity, tokens.
    pub capacity_tokens: u32,
    /// Generated tokens per second over the last 40 decode steps; 0 when idle.
    pub throughput: f64,
    /// Counters.
    pub totals: EngineTotals,
}

impl EngineStats {
    /// Returns the share of the KV cache in use by running requests, 0 to 1.
    #[must_use]
    pub fn usage(&self) -> f64 {
        f64::from(self.used_tokens) / f64::from(self.capacity_tokens.max(1))
    }
}

/// Simulated inference engine; see the module.
#[derive(Debug)]
pub struct SimulatedEngine {
    profile: EngineProfile,
    speed: f64,
    now: UnixMicros,
    /// Jobs that have not reached the scheduler yet, with the time at which they will.
    arriving: VecDeque<(UnixMicros, ScheduledRequest)>,
    live: HashSet<u64>,
    batch: BatchScheduler,
    cache: PagedKvCache,
    step: Option<(UnixMicros, StepPlan)>,
    totals: EngineTotals,
    throughput: f64,
    /// Current measurement of the throughput: its start, its decode steps and its tokens.
    counted: (UnixMicros, u32, u32),
}

impl SimulatedEngine {
    /// Creates an idle engine with an empty cache. `speed` divides all its times.
    ///
    /// # Errors
    /// The profile is invalid, or the speed is out of range.
    pub fn new(profile: EngineProfile, speed: f64) -> Result<Self, EngineError> {
        if let Some(fault) = profile.invalid_reason() {
            return Err(EngineError::Profile(fault));
        }
        if !(1e-6..=1e6).contains(&speed) {
            return Err(EngineError::Speed(speed));
        }
        Ok(Self {
            batch: BatchScheduler::new(profile.reserve),
            cache: PagedKvCache::new(profile.pages(), profile.prefix_cache),
            speed,
            now: UnixMicros(0),
            arriving: VecDeque::new(),
            live: HashSet::new(),
            step: None,
            totals: EngineTotals::default(),
            throughput: 0.0,
            counted: (UnixMicros(0), 0, 0),
            profile,
        })
    }

    /// Returns the profile.
    #[must_use]
    pub const fn profile(&self) -> &EngineProfile {
        &self.profile
    }

    /// Returns the factor that divides all times.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// Changes the speed of all steps that begin from now on.
    ///
    /// # Errors
    /// The speed is out of range.
    pub fn set_speed(&mut self, speed: f64) -> Result<(), EngineError> {
        if !(1e-6..=1e6).contains(&speed) {
            return Err(EngineError::Speed(speed));
        }
        self.speed = speed;
        Ok(())
    }

    /// Returns the tokens of a prompt that a job with these pages would find cached if it were admitted now.
    #[must_use]
    pub fn cached_prefix_tokens(&self, pages: &[u64], prompt_tokens: u32) -> u32 {
        // As in admission: the last token is always computed.
        let searchable = usize::try_from(prompt_tokens.saturating_sub(1) / PAGE_TOKENS).unwrap_or(usize::MAX);
        self.cache.find(&pages[..searchable.min(pages.len())]).0 * PAGE_TOKENS
    }

    /// Returns the prompt tokens that will be computed between the running step and the turn of a job submitted now.
    #[must_use]
    pub fn queued_prefill_tokens(&self) -> u64 {
        // `computed` moves only when a step ends, so the tokens of the running step are still among the remaining ones.
        let computing = self.step.iter().flat_map(|(_, plan)| &plan.prefill).map(|(_, tokens)| u64::from(*tokens));
        let running =
            self.batch.running.iter().map(|request| u64::from(request.target - request.computed.min(request.target)));
        let queued = self.arriving.iter().map(|(_, request)| request).chain(&self.batch.waiting);
        let queued = queued.map(|one| u64::from(one.target - self.cached_prefix_tokens(&one.chain, one.target)));
        (running.sum::<u64>() + queued.sum::<u64>()).saturating_sub(computing.sum())
    }

    /// Returns the time at which the running step ends; `None` while idle.
    #[must_use]
    pub fn step_ends(&self) -> Option<UnixMicros> {
        self.step.as_ref().map(|(ends, _)| *ends)
    }

    /// Takes a job at `at`. A time before the last [`SimulatedEngine::advance`] counts as the time of that call.
    ///
    /// # Errors
    /// The engine already has a job with that id.
    pub fn submit(&mut self, at: UnixMicros, job: SimulatedRequest) -> Result<(), EngineError> {
        if !self.live.insert(job.id) {
            return Err(EngineError::LiveId(job.id));
        }
        self.totals.submitted += 1;
        let at = at.max(self.now);
        let host = self.duration(self.profile.host_ms * 1e3);
        // Jobs reach the scheduler in order of submission, even if a higher speed shortens a later one's host time.
        let ready = self.arriving.back().map_or(UnixMicros(0), |last| last.0).max(at.plus(host));
        self.arriving.push_back((ready, ScheduledRequest::new(job, at, self.profile.pages() * PAGE_TOKENS)));
        Ok(())
    }

    /// Cancels a job. The job has no further output; its pages are freed at once, or at the end of the running step.
    /// The call takes effect at the time of the last [`SimulatedEngine::advance`]; an unknown id changes nothing.
    pub fn cancel(&mut self, id: u64) {
        if !self.live.remove(&id) {
            return;
        }
        self.totals.cancelled += 1;
        self.arriving.retain(|(_, request)| request.id != id);
        self.batch.waiting.retain(|request| request.id != id);
        // The running step's plan refers to requests by index, so a running request cannot be removed yet.
        if let Some(request) = self.batch.running.iter_mut().find(|request| request.id == id && !request.cancelled) {
            request.cancelled = true;
        }
    }

    /// Returns the time of the next event; `None` while idle.
    #[must_use]
    pub fn next_event(&self) -> Option<UnixMicros> {
        let step = self.step.as_ref().map(|(ends, _)| *ends);
        let arrival = self.arriving.front().map(|(ready, _)| *ready);
        [step, arrival].into_iter().flatten().min()
    }

    /// Does everything that is due by `at` and appends what happened, in order of time.
    pub fn advance(&mut self, at: UnixMicros, outputs: &mut Vec<EngineOutput>) {
        while let Some(due) = self.next_event().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            // A step that ends frees pages and slots before arrivals of the same moment are scheduled.
            if let Some((ends, plan)) = self.step.take_if(|(ends, _)| *ends <= due) {
                self.end_step(ends, &plan, outputs);
            }
            while let Some((ready, request)) = self.arriving.pop_front_if(|(ready, _)| *ready <= due) {
                self.arrive(ready, request, outputs);
            }
            if self.step.is_none() {
                self.start_step(due);
            }
        }
        self.now = self.now.max(at);
    }

    /// Returns what a metrics page would show now.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        EngineStats {
            running: count(self.batch.running.len()),
            waiting: count(self.batch.waiting.len()),
            used_tokens: self.cache.used() * PAGE_TOKENS,
            cached_tokens: self.cache.idle() * PAGE_TOKENS,
            capacity_tokens: self.profile.pages() * PAGE_TOKENS,
            throughput: self.throughput,
            totals: EngineTotals { retractions: self.batch.retractions, ..self.totals },
        }
    }

    fn arrive(&mut self, at: UnixMicros, request: ScheduledRequest, outputs: &mut Vec<EngineOutput>) {
        // A prompt that can never fit would block the queue for good, since no request overtakes another.
        if request.prompt_tokens > self.profile.longest_prompt() {
            self.live.remove(&request.id);
            self.totals.refused += 1;
            outputs.push(EngineOutput::Finished { id: request.id, at, reason: FinishReason::TooLong });
        } else {
            self.batch.waiting.push_back(request);
        }
    }

    fn start_step(&mut self, at: UnixMicros) {
        let plan = self.batch.plan(&self.profile, &mut self.cache);
        if plan.is_empty() {
            // The measurement begins anew, so that idle time does not lower the next figure.
            self.throughput = 0.0;
            self.counted = (at, 0, 0);
            return;
        }
        for &(place, _) in &plan.prefill {
            let request = &self.batch.running[place];
            // Counted once per job, with the first chunk of its prompt; a retracted prompt is not counted again.
            if let (false, Some(cached)) = (request.admission_counted, request.cached_tokens) {
                self.totals.prompt_tokens += u64::from(request.prompt_tokens);
                self.totals.cached_tokens += u64::from(cached);
            }
            self.batch.running[place].admission_counted = true;
        }
        let micros = plan.millis(&self.profile, &self.batch.running) * 1e3;
        // `duration` divides by the speed, so the lower bound is multiplied by it.
        let takes = self.duration(micros.max(SHORTEST_STEP_US * self.speed));
        self.step = Some((at.plus(takes), plan));
    }

    fn end_step(&mut self, at: UnixMicros, plan: &StepPlan, outputs: &mut Vec<EngineOutput>) {
        for &(place, tokens) in &plan.prefill {
            self.compute(place, tokens);
            if self.batch.running[place].decodes() {
                self.complete_prompt(place, at, outputs);
            }
        }
        for &place in &plan.decode {
            let request = &mut self.batch.running[place];
            // This step wrote the KV of the token before this one.
            request.computed = request.computed.saturating_add(1);
            request.target = request.computed;
            self.emit(place, at, outputs);
        }
        self.count_throughput(at, u32::try_from(plan.decode.len()).unwrap_or(u32::MAX));
        // Last, because the plan refers to running requests by index.
        self.remove_finished(at, outputs);
    }

    /// Records that `tokens` more of a request have been computed, and lets others find the pages that are full now.
    fn compute(&mut self, place: usize, tokens: u32) {
        let request = &mut self.batch.running[place];
        request.computed = request.computed.saturating_add(tokens);
        let full = usize::try_from(request.computed / PAGE_TOKENS).unwrap_or(usize::MAX).min(request.chain.len());
        let known = request.pinned().len();
        if full > known {
            self.cache.publish(&request.chain[known..full]);
            let published = u32::try_from(full - known).unwrap_or(u32::MAX);
            // `publish` has turned that many private pages into shared ones, and `release` relies on both counts.
            request.shared_pages += published;
            request.private_pages -= published;
        }
    }

    fn complete_prompt(&mut self, place: usize, at: UnixMicros, outputs: &mut Vec<EngineOutput>) {
        let request = &mut self.batch.running[place];
        self.cache.keep_state(&request.chain, request.prompt_tokens);
        // After a retraction the prompt is computed a second time, which must not be reported again.
        if !request.prefilled {
            request.prefilled = true;
            self.totals.prefilled += 1;
            self.totals.prefilled_us =
                self.totals.prefilled_us.saturating_add(at.0.saturating_sub(request.submitted.0));
            if !request.cancelled {
                let cached_tokens = request.cached_tokens.unwrap_or(0);
                outputs.push(EngineOutput::Prefilled { id: request.id, at, cached_tokens });
            }
        }
        // The step that completes the prompt also generates the next token.
        if request.max_tokens > 0 {
            self.emit(place, at, outputs);
        }
    }

    fn emit(&mut self, place: usize, at: UnixMicros, outputs: &mut Vec<EngineOutput>) {
        let request = &mut self.batch.running[place];
        let index = request.generated;
        request.generated += 1;
        self.totals.generation_tokens += 1;
        if !request.cancelled {
            outputs.push(EngineOutput::Token { id: request.id, at, index });
        }
    }

    fn remove_finished(&mut self, at: UnixMicros, outputs: &mut Vec<EngineOutput>) {
        let Self { batch, cache, live, totals, .. } = self;
        batch.running.retain(|request| {
            // A job with `max_tokens` of 0 is done as soon as its prompt is computed.
            let done = request.prefilled && request.generated >= request.max_tokens;
            // A cancelled job left `live` when it was cancelled, and its id may be in use again.
            if done && !request.cancelled {
                live.remove(&request.id);
                totals.finished += 1;
                let reason = if request.max_tokens == 0 { FinishReason::Stop } else { FinishReason::Length };
                outputs.push(EngineOutput::Finished { id: request.id, at, reason });
            }
            let leaves = done || request.cancelled;
            if leaves {
                cache.release(request.pinned(), request.private_pages);
            }
            !leaves
        });
    }

    fn count_throughput(&mut self, at: UnixMicros, tokens: u32) {
        if tokens == 0 {
            return;
        }
        let (since, steps, sum) = self.counted;
        self.counted = (since, steps + 1, sum.saturating_add(tokens));
        if steps + 1 >= THROUGHPUT_STEPS {
            let seconds = at.elapsed_since(since).as_secs_f64();
            self.throughput = if seconds > 0.0 { f64::from(self.counted.2) / seconds } else { 0.0 };
            self.counted = (at, 0, 0);
        }
    }

    /// Converts an engine time at speed 1, µs, to virtual time.
    fn duration(&self, micros: f64) -> Duration {
        let micros = (micros / self.speed).clamp(0.0, LONGEST_STEP_US).round();
        Duration::from_secs_f64(micros / 1e6)
    }
}

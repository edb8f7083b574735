//! Experiment of one generation: the assignment of requests to arms, and the requests that count.
//!
//! *Switchback*: blocks of requests, all of one arm, in random order within each pair (AB or BA). After a change of arm
//! the block begins with a wash-out that does not count, because queues and caches are still those of the other arm. It
//! lasts the longer of `washout_requests` requests and the 95th percentile of E2E.
//! *Session* and *request* split the traffic of the same moment instead. There both arms share queues and caches, so
//! the more selfish one looks better than it is; measured, that leads to collapse. They are offered because they need
//! no wash-out and suit fleets in which a single request has little effect.

use std::time::Duration;

use rand::Rng;

use super::contrast::BlockPair;
use super::sample::TuningSample;
use super::space::step_rng;
use crate::model::UnixMicros;

/// Rule by which requests are assigned to arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmAssignment {
    /// By blocks of time.
    Switchback,
    /// By a hash of the session.
    Session,
    /// At random.
    Request,
}

impl ArmAssignment {
    /// All rules, in documentation order.
    pub const ALL: [Self; 3] = [Self::Switchback, Self::Session, Self::Request];

    /// Name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switchback => "switchback",
            Self::Session => "session",
            Self::Request => "request",
        }
    }
}

/// Rule by which a candidate takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptanceTest {
    /// Better by a number of standard errors, checked after each pair: a group-sequential rule.
    GroupSequential,
    /// An always-valid test: a mixture likelihood ratio that may be checked after every pair, however often.
    AlwaysValid,
}

impl AcceptanceTest {
    /// All rules, in documentation order.
    pub const ALL: [Self; 2] = [Self::GroupSequential, Self::AlwaysValid];

    /// Name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GroupSequential => "group",
            Self::AlwaysValid => "always-valid",
        }
    }
}

/// Table `blocks` of a tune table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSettings {
    /// Requests of a block with the shortest wash-out; all but `washout_requests` of them count.
    pub requests: u32,
    /// Fewest requests after a change of arm that do not count.
    pub washout_requests: u32,
    /// Pairs before anything is decided.
    pub min_pairs: u32,
    /// Pairs after which an undecided candidate is rejected.
    pub max_pairs: u32,
    /// Rule of acceptance.
    pub test: AcceptanceTest,
    /// Standard errors below zero at which a candidate is accepted, if `test` is `group`.
    pub accept_se: f64,
    /// Highest probability of accepting a candidate that is no better, if `test` is `always-valid`.
    pub alpha: f64,
    /// Standard errors above zero at which a candidate is rejected.
    pub reject_se: f64,
}

impl Default for BlockSettings {
    fn default() -> Self {
        Self {
            requests: 40,
            washout_requests: 8,
            min_pairs: 4,
            max_pairs: 16,
            test: AcceptanceTest::GroupSequential,
            accept_se: 2.5,
            alpha: 0.1,
            reject_se: 0.5,
        }
    }
}

impl BlockSettings {
    /// Number of requests of a block that count.
    #[must_use]
    pub const fn counted(&self) -> u32 {
        self.requests.saturating_sub(self.washout_requests)
    }
}

/// Stamp of a decision: its position in the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialStamp {
    /// Arm: 0 incumbent, 1 candidate.
    pub arm: u8,
    /// Number of the block; rising over all generations of a policy. `None` while requests of the last blocks are
    /// pending.
    pub block: Option<u32>,
    /// True if its outcome scores the arm.
    pub counted: bool,
}

/// Samples of one block.
#[derive(Debug, Default)]
struct BlockSamples {
    /// Number of counted requests that were routed.
    counted: u32,
    /// Number of counted requests that ended.
    ended: u32,
    /// Samples of the requests that ended.
    samples: Vec<TuningSample>,
}

/// Experiment of one generation.
#[derive(Debug)]
pub struct TuningTrial {
    blocks: BlockSettings,
    assignment: ArmAssignment,
    /// Seed of the generation.
    seed: u64,
    first_block: u32,
    cells: Vec<BlockSamples>,
    /// Block (or first block of the pair) that is being filled; `began` is when it started.
    current: usize,
    began: UnixMicros,
    assigned: u32,
    washing: bool,
}

impl TuningTrial {
    /// Starts an experiment whose blocks are numbered from `first_block`. Until now the incumbent decided.
    #[must_use]
    pub fn new(blocks: BlockSettings, assignment: ArmAssignment, seed: u64, first_block: u32, at: UnixMicros) -> Self {
        let mut trial = Self {
            blocks,
            assignment,
            seed,
            first_block,
            cells: Vec::new(),
            current: 0,
            began: at,
            assigned: 0,
            washing: false,
        };
        // In a split both arms start at once. In a switchback only a start with the candidate is a change of arm.
        trial.washing = assignment != ArmAssignment::Switchback || trial.arm(0) == 1;
        trial
    }

    /// Arm of a block: within each pair the order is random.
    fn arm(&self, block: usize) -> u8 {
        // One draw per pair: its second block has the other arm.
        let first = step_rng(self.seed, (block / 2) as u64).next_u64() & 1;
        u8::try_from((first + block as u64) & 1).unwrap_or(0)
    }

    fn is_full(&self, block: usize) -> bool {
        self.cells.get(block).is_some_and(|cell| cell.counted >= self.blocks.counted())
    }

    fn cell(&mut self, block: usize) -> &mut BlockSamples {
        if self.cells.len() <= block {
            self.cells.resize_with(block + 1, BlockSamples::default);
        }
        &mut self.cells[block]
    }

    fn limit(&self) -> usize {
        2 * self.blocks.max_pairs as usize
    }

    /// Stamps the next request with its arm. `lot` decides by request, `session` by session; `washout`: present 95th
    /// percentile of E2E.
    pub fn stamp(&mut self, session: u64, lot: u64, at: UnixMicros, washout: Duration) -> TrialStamp {
        if self.assignment == ArmAssignment::Switchback {
            self.switched(at, washout)
        } else {
            self.split(session, lot, at, washout)
        }
    }

    fn switched(&mut self, at: UnixMicros, washout: Duration) -> TrialStamp {
        if self.is_full(self.current) {
            self.current += 1;
            (self.began, self.assigned) = (at, 0);
            // Two blocks of the same arm in a row (AB, BA) need no wash-out between them.
            self.washing = self.current < self.limit() && self.arm(self.current) != self.arm(self.current - 1);
        }
        // All blocks are routed, but some of their requests have not ended: the incumbent serves until the verdict.
        if self.current >= self.limit() {
            return TrialStamp { arm: 0, block: None, counted: false };
        }
        let (current, arm) = (self.current, self.arm(self.current));
        let counted = self.washed(at, washout);
        TrialStamp { arm, block: Some(self.assign_to_block(current, counted)), counted }
    }

    fn split(&mut self, session: u64, lot: u64, at: UnixMicros, washout: Duration) -> TrialStamp {
        if self.is_full(self.current) && self.is_full(self.current + 1) {
            // Later pairs of a split need no wash-out: both arms have been running all along.
            self.current += 2;
            (self.began, self.assigned, self.washing) = (at, 0, false);
        }
        // A separate random stream (`u64::MAX`), apart from those that draw the order of pairs.
        let by = if self.assignment == ArmAssignment::Session { session } else { lot };
        let arm = usize::from(step_rng(self.seed ^ by, u64::MAX).next_u64() & 1 == 1);
        if self.current >= self.limit() {
            return TrialStamp { arm: 0, block: None, counted: false };
        }
        let block = self.current + arm;
        // In a split one arm may fill its block earlier; what it gets until the other is full does not count.
        let counted = self.washed(at, washout) && !self.is_full(block);
        TrialStamp { arm: u8::from(arm == 1), block: Some(self.assign_to_block(block, counted)), counted }
    }

    /// Returns true if the wash-out is over, or if there is none.
    fn washed(&mut self, at: UnixMicros, washout: Duration) -> bool {
        // Never starts again within a block: `washing` only falls.
        self.washing &= self.assigned < self.blocks.washout_requests || at.elapsed_since(self.began) < washout;
        !self.washing
    }

    fn assign_to_block(&mut self, block: usize, counted: bool) -> u32 {
        self.assigned = self.assigned.saturating_add(1);
        self.cell(block).counted += u32::from(counted);
        self.first_block.saturating_add(u32::try_from(block).unwrap_or(u32::MAX))
    }

    /// Records the end of a counted request of that block. `None`: no evidence about the arm. Blocks of other trials
    /// are ignored.
    pub fn record_end(&mut self, block: u32, sample: Option<TuningSample>) {
        let Some(place) = block.checked_sub(self.first_block).and_then(|place| usize::try_from(place).ok()) else {
            return;
        };
        if let Some(cell) = self.cells.get_mut(place) {
            // Ended even without a sample, or the block would wait for it forever.
            cell.ended += 1;
            cell.samples.extend(sample);
        }
    }

    /// Takes back a counted request that was not routed after all: another one replaces it while the block is being
    /// filled.
    pub fn withdraw(&mut self, block: u32) {
        let place = block.checked_sub(self.first_block).and_then(|place| usize::try_from(place).ok());
        let open = self.current..=self.current + usize::from(self.assignment != ArmAssignment::Switchback);
        match place.filter(|place| open.contains(place)).and_then(|place| self.cells.get_mut(place)) {
            Some(cell) => cell.counted = cell.counted.saturating_sub(1),
            // The block is closed to replacements, so the request counts as ended without a sample.
            None => self.record_end(block, None),
        }
    }

    /// Pairs in which every counted request has ended, oldest first, up to the first that is still incomplete.
    #[must_use]
    pub fn pairs(&self) -> Vec<BlockPair> {
        let whole = |block: usize| self.is_full(block) && self.cells[block].ended >= self.cells[block].counted;
        (0..self.cells.len())
            .step_by(2)
            .take_while(|first| whole(*first) && whole(first + 1))
            .map(|first| {
                let candidate_first = self.assignment == ArmAssignment::Switchback && self.arm(first) == 1;
                let (one, other) = (self.cells[first].samples.clone(), self.cells[first + 1].samples.clone());
                if candidate_first {
                    BlockPair { incumbent: other, candidate: one }
                } else {
                    BlockPair { incumbent: one, candidate: other }
                }
            })
            .collect()
    }

    /// Number of complete pairs, without copying them.
    #[must_use]
    pub fn complete_pairs(&self) -> usize {
        let whole = |block: usize| self.is_full(block) && self.cells[block].ended >= self.cells[block].counted;
        (0..self.cells.len()).step_by(2).take_while(|first| whole(*first) && whole(first + 1)).count()
    }

    /// Returns true if no more pairs will come.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.complete_pairs() >= self.blocks.max_pairs as usize
    }

    /// First block of the complete pairs, and the one after their last: those that a verdict is based on.
    #[must_use]
    pub fn scored(&self) -> (u32, u32) {
        let whole = u32::try_from(2 * self.complete_pairs()).unwrap_or(u32::MAX);
        (self.first_block, self.first_block.saturating_add(whole))
    }

    /// First block, and the one after the last used so far.
    #[must_use]
    pub fn range(&self) -> (u32, u32) {
        let used = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        (self.first_block, self.first_block.saturating_add(used))
    }
}

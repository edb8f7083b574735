//! The data plane against engines that misbehave on command. Loopback only; no test sleeps: each waits for a row, a
//! byte or a close.

mod admission;
mod chaos;
mod ejection;
mod fixture;
mod hedging;
mod intake;
mod load;
mod object_owners;
mod paths;
mod pool;
mod retries;
mod shutdown;
mod streaming;

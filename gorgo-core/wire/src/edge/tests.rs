//! The data plane against engines that misbehave on command. Loopback only; no test sleeps: each waits for a row, a
//! byte or a close.

mod bench;
mod chaos;
mod ejection;
mod gate;
mod input;
mod load;
mod paths;
mod pool;
mod racing;
mod retries;
mod shutdown;
mod stateful;
mod streaming;

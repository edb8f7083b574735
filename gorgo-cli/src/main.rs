//! The gorgo program.
fn main() {}

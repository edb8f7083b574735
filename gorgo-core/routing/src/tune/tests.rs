//! The tuner against made-up worlds, in virtual time: what it accepts when there is nothing to find, what it finds when
//! there is, and what it does when the world changes. All seeds are fixed and printed.

mod contract;
mod objectives;
mod reference;
mod resume;
mod search;
mod synthetic;

//! The way of a row into the file: [`sink`] takes a record, [`queue`] stores it, [`writer`] wakes and writes a
//! [`batch`], whose records become [`statement`]s table by table with the [`numbers`] of this run. Rows that found no
//! room or were refused become a [`loss`].

pub(crate) mod batch;
pub(crate) mod loss;
pub(crate) mod numbers;
pub(crate) mod queue;
pub(crate) mod sink;
pub(crate) mod statement;
pub(crate) mod writer;

//! What measuring commands print: tables and pages for people, JSON and CSV for programs. Shared by `replay` and
//! `simulate`.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod table;

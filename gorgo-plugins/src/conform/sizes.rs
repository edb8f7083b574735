//! Structs shorter than the plugin expects must be refused as bad input; longer ones, from a later router, accepted.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;
use crate::abi::status;
use crate::host::columns::ColumnBuffers;
use crate::host::instance::described;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let facts = candidates(3);
    let mut room = ColumnBuffers::default();
    let mut columns = room.columns(&request(), &facts, &subject.about.asks);
    let whole = columns.struct_size;
    columns.struct_size = 16;
    let (short, _) = subject.raw(&request(), &columns, &mut room);
    if short != status::BAD_INPUT {
        return Err(format!("columns of 16 bytes: {}, not bad input (1)", described(short, "")));
    }
    // New columns, since the plugin may have written to the room's output.
    let mut columns = room.columns(&request(), &facts, &subject.about.asks);
    columns.struct_size = whole + 64;
    match subject.raw(&request(), &columns, &mut room) {
        (status::DONE | status::NO_OPINION, _) => Ok("short refused, long accepted".to_owned()),
        (status, said) => Err(format!("columns that are 64 bytes longer: {}", described(status, &said))),
    }
}

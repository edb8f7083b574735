//! No candidates at all: the call must succeed.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;
use crate::abi::status;
use crate::host::columns::ColumnBuffers;
use crate::host::instance::described;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let mut room = ColumnBuffers::default();
    let columns = room.columns(&request(), &candidates(0), &subject.about.asks);
    match subject.raw(&request(), &columns, &mut room) {
        (status::DONE | status::NO_OPINION, _) => Ok("done".to_owned()),
        (status, said) => Err(described(status, &said)),
    }
}

//! An error without a buffer for its text: only the status is returned.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;
use crate::abi::status;
use crate::host::columns::{ColumnBuffers, request as words};

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let mut room = ColumnBuffers::default();
    let mut columns = room.columns(&request(), &candidates(3), &subject.about.asks);
    // Too short for any version, so the plugin has an error to report.
    columns.struct_size = 16;
    let mut output = room.output();
    let status = subject.instance.call_without_room(subject.functions.call, &words(&request()), &columns, &mut output);
    if status == status::BAD_INPUT {
        Ok("status without text".to_owned())
    } else {
        Err(format!("status {status}, not bad input (1)"))
    }
}

//! No candidates at all: the call must succeed.

use super::facts::{invented, request};
use super::subject::Subject;
use crate::abi::status;
use crate::host::columns::Room;
use crate::host::instance::described;

pub(super) fn check(subject: &Subject) -> Result<String, String> {
    let mut room = Room::default();
    let columns = room.columns(&request(), &invented(0), &subject.about.asks);
    match subject.raw(&request(), &columns, &mut room) {
        (status::DONE | status::NO_OPINION, _) => Ok("done".to_owned()),
        (status, said) => Err(described(status, &said)),
    }
}

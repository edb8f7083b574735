//! Equal rows must get equal numbers. A plugin may treat replicas differently by name, so the rows are one replica, three
//! times.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let alone = candidates(1);
    let mut facts = candidates(0);
    facts.reset(3, 0);
    let one = subject.ask(&request(), &alone)?;
    // Three times the same replica: same facts, same name.
    for row in 0..3 {
        facts.copy_row(row, &alone, 0);
    }
    match (one, subject.ask(&request(), &facts)?) {
        (Some(one), Some(three)) if three.iter().any(|value| *value != three[0]) => {
            Err(format!("the same replica three times gets {three:?}; alone {:?}", one[0]))
        }
        (Some(_), Some(_)) => Ok("equal".to_owned()),
        _ => Ok("no opinion".to_owned()),
    }
}

//! Rows in another order must give the same numbers in that order.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;

const ROWS: u16 = 17;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let facts = candidates(ROWS);
    let count = usize::from(ROWS);
    let mut permuted = candidates(0);
    permuted.reset(count, 0);
    permuted.copy_fleet(&facts);
    // 5 and 17 share no divisor, so this reaches every row once.
    let from = |row: usize| (row * 5 + 3) % count;
    for row in 0..count {
        permuted.copy_row(row, &facts, from(row));
    }
    let (Some(plain), Some(mixed)) = (subject.ask(&request(), &facts)?, subject.ask(&request(), &permuted)?) else {
        return Ok("no opinion".to_owned());
    };
    match (0..count).find(|row| mixed[*row] != plain[from(*row)]) {
        None => Ok("the same numbers in the same order".to_owned()),
        Some(row) => {
            let (was, is) = (plain[from(row)], mixed[row]);
            Err(format!("row {} was {was:?} and is {is:?} as row {row}", from(row)))
        }
    }
}

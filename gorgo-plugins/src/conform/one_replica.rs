//! One candidate, and one that was not in the fleet when the instance was made.

use gorgo_routing::model::ReplicaId;

use super::facts::{candidates, request};
use super::subject::{FLEET, JudgeSubject};

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let mut facts = candidates(1);
    let known = subject.ask(&request(), &facts)?;
    // A plugin that indexes a table by replica id would read past its end here.
    facts.replica[0] = ReplicaId(FLEET + 1000);
    subject.ask(&request(), &facts).map_err(|cause| format!("a replica that is new to the fleet: {cause}"))?;
    Ok(match known {
        Some(rows) => rows[0].map_or_else(|| "unknown".to_owned(), |value| format!("{value:.3}")),
        None => "no opinion".to_owned(),
    })
}

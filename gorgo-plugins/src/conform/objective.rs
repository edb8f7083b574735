//! An objective: cohorts of no request, one, many, and of unknown numbers must yield a finite number or an error.

use super::subject::ObjectiveSubject;
use crate::abi::AbiCohort;
use crate::host::columns::size;

pub(super) fn check(subject: &ObjectiveSubject) -> Result<String, String> {
    let ttft_ms: Vec<f64> = (1..=100_u8).map(|place| f64::from(place) * 12.5).collect();
    let unknown = vec![f64::NAN; ttft_ms.len()];
    let cohort = |column: &[f64], count: usize| AbiCohort {
        struct_size: size::<AbiCohort>(),
        reserved: 0,
        count,
        ttft_ms: column.as_ptr(),
        e2e_ms: column.as_ptr(),
        itl_ms: column.as_ptr(),
        prompt_tokens: column.as_ptr(),
        completion_tokens: column.as_ptr(),
        span_secs: 60.0,
        failed: 1,
    };
    let ask = |cohort: &AbiCohort| subject.instance.measure(subject.measure, cohort);
    // These may have no number, but must not end the process.
    let _ = (ask(&cohort(&ttft_ms, 0)), ask(&cohort(&unknown, 3)));
    ask(&cohort(&ttft_ms, 1)).map_err(|cause| format!("one request: {}", cause.text))?;
    let first = ask(&cohort(&ttft_ms, 100)).map_err(|cause| format!("a hundred requests: {}", cause.text))?;
    if ask(&cohort(&ttft_ms, 100)) != Ok(first) {
        return Err("the same cohort gives another number the second time".to_owned());
    }
    // A plugin must look at `struct_size` before it reads a field.
    let mut short = cohort(&ttft_ms, 100);
    short.struct_size = 16;
    if ask(&short).is_ok() {
        return Err("a cohort of 16 bytes is accepted".to_owned());
    }
    Ok(format!("{first:.3} {} for 12.5 ms to 1250 ms", subject.about.unit))
}

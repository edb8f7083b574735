//! CSV with one line per request, for a spreadsheet or a data frame. Times in ms, empty if not measured.

use std::borrow::Cow;
use std::io::{self, Write};

use gorgo_lab::trace::RequestSample;

/// The columns. `decision` joins with the router's database.
const HEADER: &str = "row,id,scheduled_ms,sent_ms,slip_ms,slot_wait_ms,status,error,ttft_ms,e2e_ms,itl_ms,\
                      input_tokens,prompt_tokens,cached_tokens,completion_tokens,content_events,replica,decision,retries";

/// Writes all samples in order of their row.
pub(crate) fn write(samples: &[RequestSample], mut out: impl Write) -> io::Result<()> {
    // Samples come in the order in which requests ended; the trace's order makes two files comparable line by line.
    let mut ordered: Vec<&RequestSample> = samples.iter().collect();
    ordered.sort_by_key(|sample| sample.row);
    writeln!(out, "{HEADER}")?;
    for sample in ordered {
        let millis = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
        let fields: [Cow<'_, str>; 19] = [
            sample.row.to_string().into(),
            escaped(sample.id.as_deref().unwrap_or_default()),
            millis(Some(sample.scheduled_ms)).into(),
            millis(Some(sample.sent_ms)).into(),
            millis(Some(sample.slip_ms())).into(),
            millis(Some(sample.slot_wait_ms)).into(),
            optional(sample.status),
            sample.error.map_or("", |class| class.name()).into(),
            millis(sample.ttft_ms).into(),
            millis(Some(sample.e2e_ms)).into(),
            millis(sample.itl_ms).into(),
            sample.input_tokens.to_string().into(),
            optional(sample.usage.prompt_tokens),
            optional(sample.usage.cached_tokens),
            optional(sample.usage.completion_tokens),
            sample.content_events.to_string().into(),
            escaped(sample.replica.as_deref().unwrap_or_default()),
            optional(sample.decision),
            sample.retries.to_string().into(),
        ];
        writeln!(out, "{}", fields.join(","))?;
    }
    out.flush()
}

fn optional(value: Option<impl ToString>) -> Cow<'static, str> {
    value.map_or(Cow::Borrowed(""), |value| value.to_string().into())
}

/// A field, in quotes if necessary (RFC 4180).
pub(crate) fn escaped(field: &str) -> Cow<'_, str> {
    if field.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

#[cfg(test)]
mod tests {
    use gorgo_routing::model::{ErrorClass, TokenUsage};

    use super::*;

    #[test]
    fn lines_stand_in_order_of_their_row_with_empty_fields_for_the_unknown() {
        let good = RequestSample {
            row: 1,
            id: Some("a,\"b\"".into()),
            input_tokens: 9,
            scheduled_ms: 1.0,
            sent_ms: 2.5,
            ttft_ms: Some(10.0),
            e2e_ms: 20.0,
            itl_ms: Some(5.0),
            content_events: 3,
            usage: TokenUsage { prompt_tokens: Some(11), cached_tokens: Some(0), completion_tokens: Some(3) },
            replica: Some("seoul".into()),
            decision: Some(77),
            status: Some(200),
            ..RequestSample::default()
        };
        let bad = RequestSample { row: 0, e2e_ms: 3.0, error: Some(ErrorClass::Connect), ..RequestSample::default() };
        let mut out = Vec::new();
        write(&[good, bad], &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }
}

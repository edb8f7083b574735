//! CSV bytes → records, each with the line that it begins on.

use csv::{ByteRecord, ReaderBuilder, Trim};

/// The records of CSV bytes, the header among them, with their lines from 1; fields trimmed, blank lines left out.
/// Records may differ in length: whoever reads them says what is wrong with one that is too short.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<csv::StringRecord, String>)> + '_ {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(bytes);
    let mut lines = LineCount { bytes, at: 0, line: 1 };
    let mut record = ByteRecord::new();
    std::iter::from_fn(move || {
        loop {
            match reader.read_byte_record(&mut record) {
                Ok(true) if record.iter().all(<[u8]>::is_empty) && record.len() == 1 => {}
                Ok(true) => {
                    let line = lines.of(&record);
                    let text = csv::StringRecord::from_byte_record(record.clone());
                    return Some((line, text.map_err(|_| "not UTF-8 text".to_owned())));
                }
                // Reading from memory does not fail, and records of any length are allowed.
                Ok(false) | Err(_) => return None,
            }
        }
    })
}

/// Lines counted up to a record. The reader's own count does not know whether it stands before or after the second
/// character of a line end, nor of the blank lines before a record.
struct LineCount<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl LineCount<'_> {
    fn of(&mut self, record: &ByteRecord) -> usize {
        let begin = record.position().map_or(0, csv::Position::byte);
        let begin = usize::try_from(begin).unwrap_or(usize::MAX).min(self.bytes.len());
        let blank = self.bytes[begin..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let begin = begin + blank;
        self.line += self.bytes[self.at.min(begin)..begin].iter().filter(|byte| **byte == b'\n').count();
        self.at = begin;
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_lines_that_they_begin_on() {
        for end in ["\n", "\r\n"] {
            let text = ["a, b", "", "  ", "1,2,3", "\"x,", "y\",z", "last"].join(end);
            let found: Vec<(usize, Vec<String>)> = records(text.as_bytes())
                .map(|(line, record)| (line, record.unwrap().iter().map(str::to_owned).collect()))
                .collect();
            let quoted = format!("x,{end}y");
            let wanted: [(usize, Vec<&str>); 4] =
                [(1, vec!["a", "b"]), (4, vec!["1", "2", "3"]), (5, vec![&quoted, "z"]), (7, vec!["last"])];
            assert_eq!(found, wanted.map(|(line, fields)| (line, fields.into_iter().map(str::to_owned).collect())));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_a_fault_of_their_line() {
        let mut found = records(b"a,b\n\xff,1\nc,d\n");
        assert_eq!(found.next().map(|(line, _)| line), Some(1));
        assert_eq!(found.next(), Some((2, Err("not UTF-8 text".to_owned()))));
        assert_eq!(found.next().map(|(line, _)| line), Some(3));
    }
}

//! Reads the audit record backwards.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use serde_json::Value;

use crate::api::node::{AuditLine, AuditPage};

/// The maximum number of lines on a page.
const LINES_MAX: usize = 50;
/// The maximum number of bytes read for a page. A line has at most about 64 KiB, the size limit of a request of the admin API.
const BYTES_MAX: u64 = 256 * 1024;

/// The last lines before a position in the file, or before its end.
pub(super) fn read_backwards(path: &Path, before: Option<u64>) -> io::Result<AuditPage> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let end = before.map_or(end, |before| before.min(end));
    let start = end.saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end - start).read_to_end(&mut bytes)?;
    let mut lines = Vec::new();
    let mut at = end;
    for line in bytes.split_inclusive(|byte| *byte == b'\n').rev() {
        let begins = at - line.len() as u64;
        // A line that begins before the bytes that were read is left for the next page.
        if lines.len() == LINES_MAX || (begins == start && start > 0) {
            break;
        }
        at = begins;
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            let no_json = |_| AuditLine::Other(Value::from(text));
            lines.push(serde_json::from_str(text).unwrap_or_else(no_json));
        }
    }
    // Skip a line that is longer than what is read: otherwise reading would not get past it.
    let next = if at == end && start > 0 { start } else { at };
    Ok(AuditPage {
        changes: lines,
        next: (next > 0).then_some(next),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// A line that is no change.
    fn other(line: AuditLine) -> Value {
        match line {
            AuditLine::Other(line) => line,
            AuditLine::Change(change) => panic!("{change:?}"),
        }
    }

    /// All lines, page by page.
    fn all(path: &Path) -> (Vec<Value>, usize) {
        let (mut lines, mut pages, mut before) = (Vec::new(), 0, None);
        loop {
            let page = read_backwards(path, before).unwrap();
            lines.extend(page.changes.into_iter().map(other));
            pages += 1;
            match page.next {
                Some(next) => before = Some(next),
                None => return (lines, pages),
            }
        }
    }

    #[test]
    fn every_line_is_read_once_the_newest_first() {
        let text: String = (0..120).map(|number| format!("{{\"n\":{number}}}\n")).collect();
        let (lines, pages) = all(file(&text).path());
        let numbers: Vec<i64> = lines.iter().map(|line| line["n"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (0..120).rev().collect::<Vec<i64>>());
        assert_eq!(pages, 3);
        assert_eq!(all(file("").path()), (Vec::new(), 1));
    }

    #[test]
    fn long_lines_cut_no_page_in_two_and_one_beyond_the_limit_is_passed_over() {
        let line = |name: &str, length: u64| format!("\"{name}{}\"\n", "x".repeat(usize::try_from(length).unwrap()));
        let text: String = ["a", "b", "c", "d"].map(|name| line(name, BYTES_MAX / 2 - 20)).concat();
        let (lines, _) = all(file(&text).path());
        let names: String = lines.iter().filter_map(|line| line.as_str()?.chars().next()).collect();
        assert_eq!(names, "dcba");
        let text = format!("1\n{}2\n", line("long", BYTES_MAX * 3));
        let (lines, pages) = all(file(&text).path());
        assert_eq!(
            (lines.first(), lines.last()),
            (Some(&Value::from(2)), Some(&Value::from(1)))
        );
        assert!(pages < 10, "{pages}");
    }

    #[test]
    fn a_line_that_is_none_is_shown_as_it_is() {
        let page = read_backwards(file("half a li\n{}\n").path(), None).unwrap();
        let lines = page.changes.into_iter().map(other);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [serde_json::json!({}), Value::from("half a li")]
        );
    }
}

//! Small text files with a checksum in their first line.

/// The content of a small file: the body, after a line with its checksum.
pub(super) fn with_checksum(body: &str) -> String {
    format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()))
}

/// The body of a file; `None` if the checksum does not match.
pub(super) fn without_checksum(text: &str) -> Option<&str> {
    let (sum, body) = text.split_once('\n')?;
    (sum == format!("{:08x}", crc32fast::hash(body.as_bytes()))).then_some(body)
}

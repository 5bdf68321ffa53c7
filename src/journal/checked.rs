//! Small files that are written as a whole, with a checksum in their first line.

/// The text of a file with this body.
pub(super) fn text(body: &str) -> String {
    format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()))
}

/// The body; `None`: it is not what was written.
pub(super) fn body(text: &str) -> Option<&str> {
    let (sum, body) = text.split_once('\n')?;
    (sum == format!("{:08x}", crc32fast::hash(body.as_bytes()))).then_some(body)
}

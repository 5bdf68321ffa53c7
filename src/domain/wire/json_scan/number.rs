//! The number grammar of RFC 8259 section 6.

/// Returns the length of the number at the beginning of `text` (RFC 8259 section 6), whose first byte is a minus sign or a digit.
/// The caller checks what follows.
///
/// # Errors
/// The offset at which a digit is missing.
pub(super) fn number_length(text: &[u8]) -> Result<usize, usize> {
    let peek = |at: usize| text.get(at).copied();
    let mut at = usize::from(peek(0) == Some(b'-'));
    if peek(at) == Some(b'0') {
        // No digit may follow a leading zero; the caller finds it as an error.
        at += 1;
    } else {
        at = digits_end(text, at)?;
    }
    if peek(at) == Some(b'.') {
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = peek(at) {
        let has_sign = matches!(peek(at + 1), Some(b'+' | b'-'));
        at = digits_end(text, at + 1 + usize::from(has_sign))?;
    }
    Ok(at)
}

fn digits_end(text: &[u8], start: usize) -> Result<usize, usize> {
    let rest = text.get(start..).unwrap_or_default();
    match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
        0 => Err(start),
        digits => Ok(start + digits),
    }
}

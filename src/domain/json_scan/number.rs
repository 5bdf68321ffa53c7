//! The number grammar of RFC 8259 section 6.

use super::cursor::Cursor;
use super::{Fault, ScanError};

/// Steps over a number; the cursor stands on its minus sign or first digit. Gives the value of a number without sign,
/// fraction and exponent that fits; whatever follows is judged by the caller.
pub(super) fn skip(cursor: &mut Cursor<'_>) -> Result<Option<u64>, ScanError> {
    let start = cursor.rest();
    let mut is_integer = true;
    if cursor.peek() == Some(b'-') {
        is_integer = false;
        cursor.advance(1);
    }
    if cursor.peek() == Some(b'0') {
        // A leading zero stands alone: a digit after it is an error of whatever comes next.
        cursor.advance(1);
    } else {
        digits(cursor)?;
    }
    if cursor.peek() == Some(b'.') {
        is_integer = false;
        cursor.advance(1);
        digits(cursor)?;
    }
    if let Some(b'e' | b'E') = cursor.peek() {
        is_integer = false;
        cursor.advance(1);
        if let Some(b'+' | b'-') = cursor.peek() {
            cursor.advance(1);
        }
        digits(cursor)?;
    }
    if !is_integer {
        return Ok(None);
    }
    let length = start.len() - cursor.rest().len();
    Ok(start.iter().take(length).try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))
    }))
}

fn digits(cursor: &mut Cursor<'_>) -> Result<(), ScanError> {
    if cursor.skip_digits() == 0 {
        Err(cursor.fault(Fault::DigitExpected))
    } else {
        Ok(())
    }
}

//! Completes an interrupted JSON value so that it becomes valid.

use super::{LexerEscapeState, PickLexer, PickLexerMode, StringRole, TAIL_BYTES};

impl PickLexer {
    /// Returns the bytes that complete the JSON value read so far; `None` if it is already invalid.
    pub(in crate::domain::wire::json_pick) fn completion(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self.mode {
            PickLexerMode::Inert => return None,
            PickLexerMode::Text(role) => {
                self.complete_text(&mut out);
                out.push(b'"');
                if role == StringRole::Key {
                    out.extend_from_slice(b":null");
                }
            }
            PickLexerMode::Number => {
                if matches!(self.tail, [_, _, b'-' | b'+' | b'.' | b'e' | b'E']) {
                    out.push(b'0');
                }
            }
            PickLexerMode::Literal(rest) => out.extend_from_slice(rest),
            PickLexerMode::Value => out.extend_from_slice(b"null"),
            PickLexerMode::NextKey => out.extend_from_slice(b"\"\":null"),
            PickLexerMode::Colon => out.extend_from_slice(b":null"),
            PickLexerMode::FirstValue | PickLexerMode::FirstKey | PickLexerMode::Next | PickLexerMode::Done => {}
        }
        for level in (1..=self.depth).rev() {
            out.push(if self.is_array(level) { b']' } else { b'}' });
        }
        Some(out)
    }

    fn complete_text(&self, out: &mut Vec<u8>) {
        const TRAILING: &[u8; 6] = b"\\udc00";
        match self.escape {
            LexerEscapeState::None => complete_utf8(self.tail, out),
            LexerEscapeState::AfterHigh => out.extend_from_slice(TRAILING),
            LexerEscapeState::Slash { after_high: true } => {
                out.extend_from_slice(TRAILING.get(1..).unwrap_or_default())
            }
            LexerEscapeState::Slash { after_high: false } => out.push(b'n'),
            LexerEscapeState::Hex {
                digits,
                after_high: true,
                ..
            } => {
                out.extend_from_slice(TRAILING.get(2 + usize::from(digits)..).unwrap_or_default());
            }
            LexerEscapeState::Hex {
                digits,
                value,
                after_high: false,
            } => {
                let missing = 4_u8.saturating_sub(digits);
                out.resize(out.len() + usize::from(missing), b'0');
                if (0xD800..=0xDBFF).contains(&value.checked_shl(4 * u32::from(missing)).unwrap_or(0)) {
                    out.extend_from_slice(TRAILING);
                }
            }
        }
    }
}

/// Appends the missing bytes of a UTF-8 sequence that has arrived only in part. `tail` contains the last bytes that have arrived.
fn complete_utf8(tail: [u8; TAIL_BYTES], out: &mut Vec<u8>) {
    let continuations = tail.iter().rev().take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    let Some(&lead) = tail.iter().rev().nth(continuations) else {
        return;
    };
    let wanted = match lead {
        0xC2..=0xDF => 1,
        0xE0..=0xEF => 2,
        0xF0..=0xF4 => 3,
        _ => 0,
    };
    for at in continuations..wanted {
        // After these two lead bytes the range of the next byte is smaller, because overlong forms are invalid.
        out.push(match (at, lead) {
            (0, 0xE0) => 0xA0,
            (0, 0xF0) => 0x90,
            _ => 0x80,
        });
    }
}

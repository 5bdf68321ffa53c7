//! Finds the end of a JSON value in a request body that arrives in pieces.

/// Whether the JSON value ends in the current piece of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonEndProgress {
    /// The value continues in the next piece.
    More,
    /// The value is complete. It ends at this offset in the piece.
    CompleteAt(usize),
}

/// A detector for the end of a top-level object or array that arrives in pieces. It follows only strings, escapes and the nesting
/// depth, because [`super::scan`] validates the body once it is complete.
#[derive(Debug, Clone, Default)]
pub struct JsonEnd {
    state: JsonEndState,
    depth: usize,
}

#[derive(Debug, Clone, Copy, Default)]
enum JsonEndState {
    /// Before the value: only white space has arrived.
    #[default]
    Before,
    Between,
    InString,
    /// Directly after a backslash in a string.
    Escaped,
    Complete,
    /// The top-level value is not a container, so its end cannot be recognised.
    Unbounded,
}

impl JsonEnd {
    /// Returns a detector at the start of a body.
    pub fn new() -> JsonEnd {
        JsonEnd::default()
    }

    /// Reads the next piece, which can have any size. After the end of the value, every further piece returns `CompleteAt(0)`. If
    /// the top-level value is neither an object nor an array, every piece returns `More`.
    pub fn push(&mut self, piece: &[u8]) -> JsonEndProgress {
        let mut rest = piece;
        loop {
            let step = match self.state {
                JsonEndState::Complete => return JsonEndProgress::CompleteAt(piece.len() - rest.len()),
                JsonEndState::Unbounded => return JsonEndProgress::More,
                JsonEndState::Before => rest
                    .iter()
                    .position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')),
                JsonEndState::Between => rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
                JsonEndState::InString => memchr::memchr2(b'"', b'\\', rest),
                JsonEndState::Escaped => (!rest.is_empty()).then_some(0),
            };
            let Some((byte, after)) = step.and_then(|at| rest.get(at..)).and_then(<[u8]>::split_first) else {
                return JsonEndProgress::More;
            };
            self.on_byte(*byte);
            rest = after;
        }
    }

    /// Handles a byte that has a meaning in the current state.
    fn on_byte(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (JsonEndState::Before | JsonEndState::Between, b'{' | b'[') => {
                self.depth += 1;
                JsonEndState::Between
            }
            (JsonEndState::Between, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    JsonEndState::Complete
                } else {
                    JsonEndState::Between
                }
            }
            (JsonEndState::Between, b'"') | (JsonEndState::Escaped, _) => JsonEndState::InString,
            (JsonEndState::InString, b'"') => JsonEndState::Between,
            (JsonEndState::InString, _) => JsonEndState::Escaped,
            (JsonEndState::Before, _) => JsonEndState::Unbounded,
            (unchanged, _) => unchanged,
        };
    }
}

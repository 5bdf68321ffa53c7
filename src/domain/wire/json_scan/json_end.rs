//! Finds the end of an uploaded JSON value while its pieces arrive.

/// What a piece of the body told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The value goes on.
    More,
    /// The value is complete: the offset in this piece one past its last byte.
    CompleteAt(usize),
}

/// Finds the end of a top-level object or array, however the body is split. Validates nothing: it follows strings,
/// escapes and the nesting depth only, and [`super::scan`] judges the body once it is whole.
#[derive(Debug, Clone, Default)]
pub struct JsonEnd {
    place: Place,
    depth: usize,
}

#[derive(Debug, Clone, Copy, Default)]
enum Place {
    /// Only white space so far.
    #[default]
    Before,
    Between,
    InString,
    /// Right after a backslash in a string.
    Escaped,
    Complete,
    /// The top level is not a container: such a value has no end of its own.
    Unbounded,
}

impl JsonEnd {
    /// A detector that has seen nothing yet.
    pub fn new() -> JsonEnd {
        JsonEnd::default()
    }

    /// Takes the next piece, of any size. Once complete, every further piece gives `CompleteAt(0)`. A top level that is
    /// neither object nor array gives `More` for ever.
    pub fn push(&mut self, piece: &[u8]) -> Progress {
        let mut rest = piece;
        loop {
            let step = match self.place {
                Place::Complete => return Progress::CompleteAt(piece.len() - rest.len()),
                Place::Unbounded => return Progress::More,
                Place::Before => rest
                    .iter()
                    .position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')),
                Place::Between => rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
                Place::InString => memchr::memchr2(b'"', b'\\', rest),
                Place::Escaped => (!rest.is_empty()).then_some(0),
            };
            let Some((byte, after)) = step.and_then(|at| rest.get(at..)).and_then(<[u8]>::split_first) else {
                return Progress::More;
            };
            self.take(*byte);
            rest = after;
        }
    }

    /// Acts on a byte that means something in the present place.
    fn take(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Before | Place::Between, b'{' | b'[') => {
                self.depth += 1;
                Place::Between
            }
            (Place::Between, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    Place::Complete
                } else {
                    Place::Between
                }
            }
            (Place::Between, b'"') | (Place::Escaped, _) => Place::InString,
            (Place::InString, b'"') => Place::Between,
            (Place::InString, _) => Place::Escaped,
            (Place::Before, _) => Place::Unbounded,
            (unchanged, _) => unchanged,
        };
    }
}

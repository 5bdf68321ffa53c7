//! The key being read, if a path could match it.

/// Bytes of a key that can match; longer keys match nothing.
const KEY_BYTES_MAX: usize = 48;

#[derive(Debug)]
pub(super) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not in a key, or in one that cannot matter.
    Off,
    Collecting,
    /// Too long or escaped.
    Unmatchable,
}

impl Key {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; KEY_BYTES_MAX],
            length: 0,
            state: State::Off,
        }
    }

    /// A key begins; `can_matter` says whether any path could match it.
    pub(super) fn begin(&mut self, can_matter: bool) {
        self.length = 0;
        self.state = if can_matter { State::Collecting } else { State::Off };
    }

    /// More of the key, if one is being read; an escape begins a piece of its own.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.state != State::Collecting {
            return;
        }
        let room = self
            .bytes
            .get_mut(self.length..)
            .and_then(|room| room.get_mut(..bytes.len()));
        match room {
            Some(room) if !bytes.starts_with(b"\\") => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.state = State::Unmatchable,
        }
    }

    pub(super) fn end(&mut self) {
        self.state = State::Off;
    }

    /// The key with its last piece, when it can match. One that has come in one piece, as most do, is not copied.
    pub(super) fn with<'k>(&'k mut self, last: &'k [u8]) -> Option<&'k [u8]> {
        if self.state == State::Collecting
            && self.length == 0
            && last.len() <= KEY_BYTES_MAX
            && !last.starts_with(b"\\")
        {
            return Some(last);
        }
        self.extend(last);
        if self.state == State::Collecting {
            self.bytes.get(..self.length)
        } else {
            None
        }
    }
}

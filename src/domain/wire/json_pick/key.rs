//! Buffers the key being read.

/// The maximum length of a key that a path can match.
const KEY_BYTES_MAX: usize = 48;

/// The key being read, if a path could match it.
#[derive(Debug)]
pub(super) struct KeyBuffer {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
    state: KeyBufferState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyBufferState {
    /// Not in a key, or in one that no path can match.
    Off,
    Collecting,
    /// Too long or escaped.
    Unmatchable,
}

impl KeyBuffer {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; KEY_BYTES_MAX],
            length: 0,
            state: KeyBufferState::Off,
        }
    }

    /// Begins a key; `can_matter` says whether any path could match it.
    pub(super) fn begin(&mut self, can_matter: bool) {
        self.length = 0;
        self.state = if can_matter {
            KeyBufferState::Collecting
        } else {
            KeyBufferState::Off
        };
    }

    /// Appends a piece of the key, if it is collected; an escape must begin a piece.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.state != KeyBufferState::Collecting {
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
            _ => self.state = KeyBufferState::Unmatchable,
        }
    }

    pub(super) fn end(&mut self) {
        self.state = KeyBufferState::Off;
    }

    /// The key with its last piece; `None` if no path can match it. A key in one piece, the usual case, is not copied.
    pub(super) fn complete_with<'k>(&'k mut self, last: &'k [u8]) -> Option<&'k [u8]> {
        if self.state == KeyBufferState::Collecting
            && self.length == 0
            && last.len() <= KEY_BYTES_MAX
            && !last.starts_with(b"\\")
        {
            return Some(last);
        }
        self.extend(last);
        if self.state == KeyBufferState::Collecting {
            self.bytes.get(..self.length)
        } else {
            None
        }
    }
}

//! Follows the frames of an HTTP/2 connection (RFC 9113 section 4.1), without decoding them, as far as heads are concerned: what has
//! come of one before its end.

/// The length of the client's connection preface.
const PREFACE_BYTES: usize = 24;

/// The length of a frame's own head: length, type, flags, stream.
const FRAME_HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag of a frame that ends its head.
const END_HEADERS: u8 = 0x4;

/// The frames of one client, followed as they arrive, from the preface on.
#[derive(Debug)]
pub(crate) struct Frames {
    /// What of the preface is to come.
    preface: usize,
    /// The current frame's head, and how much of it has come.
    head: [u8; FRAME_HEAD_BYTES],
    come: usize,
    /// The length of its payload, and what of that is to come.
    length: usize,
    left: usize,
    /// What the whole frames of a head have that has not come to its end.
    block: usize,
}

/// What of a head has come before its end, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Of a frame that is not whole, and so not decoded.
    pub frame: usize,
    /// Of its whole frames, which are decoded.
    pub block: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            preface: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            come: 0,
            length: 0,
            left: 0,
            block: 0,
        }
    }
}

impl Frames {
    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = skip(&mut self.preface, bytes);
        while !rest.is_empty() {
            rest = match self.come < FRAME_HEAD_BYTES {
                true => self.begin(rest),
                false => skip(&mut self.left, rest),
            };
            if self.come == FRAME_HEAD_BYTES && self.left == 0 {
                self.end();
            }
        }
    }

    /// What has come of a head before its end. Data is none, whether its frame is whole or not.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let is_data = self.come == FRAME_HEAD_BYTES && self.kind() == DATA;
        Unfinished {
            frame: if is_data {
                0
            } else {
                self.come + self.length - self.left
            },
            block: self.block,
        }
    }

    /// Takes a part of a frame's head; returns what follows.
    fn begin<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        let room = self.head.iter_mut().skip(self.come);
        for (to, from) in room.zip(bytes) {
            *to = *from;
            self.come += 1;
            rest = rest.get(1..).unwrap_or_default();
        }
        if self.come == FRAME_HEAD_BYTES {
            let [high, middle, low, ..] = self.head;
            self.length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            self.left = self.length;
        }
        rest
    }

    fn end(&mut self) {
        let [_, _, _, kind, flags, ..] = self.head;
        let is_last = flags & END_HEADERS != 0;
        self.block = match kind {
            HEADERS | CONTINUATION if is_last => 0,
            HEADERS => self.length,
            CONTINUATION => self.block.saturating_add(self.length),
            _ => self.block,
        };
        (self.come, self.length) = (0, 0);
    }

    fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.head;
        kind
    }
}

/// Skips as much as is `left`; returns what follows.
fn skip<'b>(left: &mut usize, bytes: &'b [u8]) -> &'b [u8] {
    let here = (*left).min(bytes.len());
    *left -= here;
    bytes.get(here..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.resize(FRAME_HEAD_BYTES + payload, 1);
        frame
    }

    /// What is unfinished behind the preface and these bytes, in pieces of `step`.
    fn behind(bytes: &[u8], step: usize) -> Unfinished {
        let mut frames = Frames::default();
        let all = [&[b'x'; PREFACE_BYTES], bytes].concat();
        for piece in all.chunks(step) {
            frames.push(piece);
        }
        frames.unfinished()
    }

    #[test]
    fn a_head_is_unfinished_from_its_first_byte_to_its_last() {
        let settings = frame(4, 0, 6);
        let head = [
            frame(HEADERS, 0, 100),
            frame(CONTINUATION, 0, 50),
            frame(CONTINUATION, END_HEADERS, 7),
        ]
        .concat();
        let all = [settings, head, frame(DATA, 0, 1000)[..500].to_vec()].concat();
        let at = |come: usize| behind(&all[..come], 3);
        let unfinished = |frame, block| Unfinished { frame, block };
        assert_eq!(at(0), unfinished(0, 0));
        assert_eq!(
            (at(5), at(14), at(15)),
            (unfinished(5, 0), unfinished(14, 0), unfinished(0, 0))
        );
        assert_eq!((at(15 + 108), at(15 + 109)), (unfinished(108, 0), unfinished(0, 100)));
        assert_eq!(
            (at(15 + 109 + 20), at(15 + 109 + 59)),
            (unfinished(20, 100), unfinished(0, 150))
        );
        assert_eq!(
            (at(15 + 168 + 15), at(15 + 168 + 16)),
            (unfinished(15, 150), unfinished(0, 0))
        );
        assert_eq!(at(all.len()), unfinished(0, 0), "data is no head");
    }

    #[test]
    fn a_head_in_one_frame_leaves_nothing_and_a_large_one_is_followed_to_its_end() {
        assert_eq!(behind(&frame(HEADERS, END_HEADERS | 1, 0), 9), Unfinished::default());
        let large = frame(HEADERS, END_HEADERS, (1 << 24) - 1);
        assert_eq!(behind(&large[..1 << 20], 4096).frame, 1 << 20);
        assert_eq!(behind(&large, 1 << 16), Unfinished::default());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec((0..10_u8, any::<u8>(), 0..40_usize), 0..8),
            cut in 0..400_usize,
            step in 1..30_usize,
        ) {
            let mut all: Vec<u8> = frames.into_iter().flat_map(|(kind, flags, payload)| frame(kind, flags, payload)).collect();
            all.truncate(cut);
            prop_assert_eq!(behind(&all, step), behind(&all, 1000));
        }
    }
}

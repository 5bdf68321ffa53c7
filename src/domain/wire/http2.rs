//! Measures unfinished request heads of an HTTP/2 connection. The tracker follows the frames (RFC 9113 section 4.1), but does not
//! decode their contents.

/// The length of the preface that an HTTP/2 client sends first, in bytes.
const PREFACE_BYTES: usize = 24;

/// The length of a frame's header in bytes. The header contains the frame's length, type, flags and stream.
const FRAME_HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag that marks the last frame of a request's head.
const END_HEADERS: u8 = 0x4;

/// A tracker that follows the frames of one client as they arrive, beginning with the connection's preface.
#[derive(Debug)]
pub(crate) struct Http2HeadTracker {
    /// The number of bytes of the preface that have not arrived.
    preface: usize,
    /// The header of the current frame. Its first `header_bytes_received` bytes have arrived.
    head: [u8; FRAME_HEAD_BYTES],
    header_bytes_received: usize,
    /// The length of the current frame's payload in bytes. `payload_left` of these bytes have not arrived.
    length: usize,
    payload_left: usize,
    /// The number of payload bytes in the complete frames of a head whose last frame has not arrived.
    block: usize,
}

/// How much of an incomplete head has arrived, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnfinishedHead {
    /// The number of received bytes of an incomplete frame, which is not decoded yet.
    pub frame: usize,
    /// The number of bytes in the head's complete frames, which are already decoded.
    pub block: usize,
}

impl Default for Http2HeadTracker {
    fn default() -> Self {
        Self {
            preface: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            header_bytes_received: 0,
            length: 0,
            payload_left: 0,
            block: 0,
        }
    }
}

impl Http2HeadTracker {
    /// Reads the next bytes of the connection.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = skip(&mut self.preface, bytes);
        while !rest.is_empty() {
            rest = match self.header_bytes_received < FRAME_HEAD_BYTES {
                true => self.read_frame_header(rest),
                false => skip(&mut self.payload_left, rest),
            };
            if self.header_bytes_received == FRAME_HEAD_BYTES && self.payload_left == 0 {
                self.end_frame();
            }
        }
    }

    /// Returns the size of the head that is not complete. The bytes of DATA frames are not included.
    pub(crate) fn unfinished_head(&self) -> UnfinishedHead {
        let is_data = self.header_bytes_received == FRAME_HEAD_BYTES && self.frame_type() == DATA;
        UnfinishedHead {
            frame: if is_data {
                0
            } else {
                self.header_bytes_received + self.length - self.payload_left
            },
            block: self.block,
        }
    }

    /// Reads a part of a frame's header, and returns the bytes after it.
    fn read_frame_header<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        let room = self.head.iter_mut().skip(self.header_bytes_received);
        for (to, from) in room.zip(bytes) {
            *to = *from;
            self.header_bytes_received += 1;
            rest = rest.get(1..).unwrap_or_default();
        }
        if self.header_bytes_received == FRAME_HEAD_BYTES {
            let [high, middle, low, ..] = self.head;
            self.length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            self.payload_left = self.length;
        }
        rest
    }

    fn end_frame(&mut self) {
        let [_, _, _, kind, flags, ..] = self.head;
        let is_last = flags & END_HEADERS != 0;
        self.block = match kind {
            HEADERS | CONTINUATION if is_last => 0,
            HEADERS => self.length,
            CONTINUATION => self.block.saturating_add(self.length),
            _ => self.block,
        };
        (self.header_bytes_received, self.length) = (0, 0);
    }

    fn frame_type(&self) -> u8 {
        let [_, _, _, kind, ..] = self.head;
        kind
    }
}

/// Skips up to `left` bytes, subtracts their number from `left`, and returns the bytes after them.
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

    /// Returns the unfinished head after the preface and `bytes`, which are read in pieces of `step` bytes.
    fn behind(bytes: &[u8], step: usize) -> UnfinishedHead {
        let mut frames = Http2HeadTracker::default();
        let all = [&[b'x'; PREFACE_BYTES], bytes].concat();
        for piece in all.chunks(step) {
            frames.push(piece);
        }
        frames.unfinished_head()
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
        let unfinished = |frame, block| UnfinishedHead { frame, block };
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
        assert_eq!(
            behind(&frame(HEADERS, END_HEADERS | 1, 0), 9),
            UnfinishedHead::default()
        );
        let large = frame(HEADERS, END_HEADERS, (1 << 24) - 1);
        assert_eq!(behind(&large[..1 << 20], 4096).frame, 1 << 20);
        assert_eq!(behind(&large, 1 << 16), UnfinishedHead::default());
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

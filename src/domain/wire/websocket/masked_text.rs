//! Text messages of a client, which masks them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::payload::mask_in_place;
use super::write_text_header;

/// A text message in one masked frame. The text is masked as it is written, so that no second copy of it is in memory.
#[derive(Debug)]
pub struct MaskedText {
    mask: [u8; 4],
    /// The length of the text in bytes, until the frame's header is written; `None` after that.
    header: Option<u64>,
    /// The parts of the text that have not been written.
    parts: VecDeque<Bytes>,
    /// The number of bytes of the text that have been written, modulo the length of the mask.
    offset: usize,
}

impl MaskedText {
    /// Creates a message whose text is `parts`, one after the other. Together they must be UTF-8.
    pub fn new(parts: impl IntoIterator<Item = Bytes>, mask: [u8; 4]) -> Self {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self {
            mask,
            header: Some(parts.iter().map(|part| part.len() as u64).sum()),
            parts,
            offset: 0,
        }
    }

    /// Whether all of the frame has been written.
    pub fn is_written(&self) -> bool {
        self.header.is_none() && self.parts.is_empty()
    }

    /// Appends the next bytes of the frame to `out`: its header at first, and at most `bytes_max` bytes of the text.
    pub fn write_next(&mut self, out: &mut BytesMut, bytes_max: usize) {
        if let Some(length) = self.header.take() {
            write_text_header(out, length, Some(self.mask));
        }
        let mut room = bytes_max;
        while room > 0
            && let Some(part) = self.parts.front_mut()
        {
            let piece = part.split_to(room.min(part.len()));
            if part.is_empty() {
                self.parts.pop_front();
            }
            room -= piece.len();
            let start = out.len();
            out.extend_from_slice(&piece);
            if let Some(text) = out.get_mut(start..) {
                mask_in_place(text, self.mask, self.offset);
            }
            self.offset = (self.offset + piece.len()) % self.mask.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::wire::websocket::{FrameDecoder, FrameEvent, FrameLimits, FrameRole, MessageKind};

    /// The text that a server reads from a frame, and whether that is a complete message.
    fn decoded(mut frame: BytesMut) -> (Option<u64>, Vec<u8>, bool) {
        let limits = FrameLimits {
            message_bytes_max: 1 << 20,
            fragments_max: 1,
        };
        let mut decoder = FrameDecoder::new(FrameRole::Server, limits);
        let (mut announced, mut text, mut is_complete) = (None, Vec::new(), false);
        while let Some(event) = decoder.next_event(&mut frame).expect("valid frames") {
            match event {
                FrameEvent::MessageStart { kind, length } => {
                    assert_eq!(kind, MessageKind::Text);
                    announced = length;
                }
                FrameEvent::Payload(piece) => text.extend_from_slice(&piece),
                FrameEvent::MessageEnd => is_complete = true,
                other => panic!("{other:?}"),
            }
        }
        (announced, text, is_complete)
    }

    proptest! {
        #[test]
        fn a_server_reads_the_parts_as_one_text_however_they_are_written(
            parts in prop::collection::vec("[a-zé€]{0,40}", 0..6),
            mask: [u8; 4],
            bytes_max in 1_usize..50,
        ) {
            let text = parts.concat();
            let mut message = MaskedText::new(parts.into_iter().map(Bytes::from), mask);
            let mut frame = BytesMut::new();
            let mut rounds = 0;
            while !message.is_written() {
                message.write_next(&mut frame, bytes_max);
                rounds += 1;
                prop_assert!(rounds <= text.len() + 1);
            }
            message.write_next(&mut frame, bytes_max);
            prop_assert_eq!(decoded(frame), (Some(text.len() as u64), text.into_bytes(), true));
        }
    }
}

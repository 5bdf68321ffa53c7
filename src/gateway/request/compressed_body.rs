//! Decodes a compressed request body while it arrives, up to the size limit.
//!
//! Decoding needs memory for the decoded text and for the decoder's window. The buffer for the text grows with the text and
//! counts in the process-wide budget. The decoder touches only as many bytes of the window as it has decoded. So a decompression
//! bomb costs no more memory than the largest uncompressed body.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::json_scan::{JsonEnd, JsonEndProgress},
    },
    edges::body_budget::BodyReservation,
    gateway::{
        coding::{
            Coding,
            decoding::{Decoding, DecodingError, Following},
        },
        request::{
            body,
            body_work::{FREE_BYTES_MAX, KeyWork, timed},
        },
    },
};

#[cfg(test)]
mod tests;

/// The maximum number of decoded bytes of a body that is decoded on the request's own thread. Decoding them takes about as much
/// work as the rest of the request.
pub(crate) const AT_ONCE_DECODED_BYTES_MAX: usize = 64 * 1024;

/// The number of bytes that one step decodes before the key is charged. A step takes a fraction of a millisecond.
const STEP_BYTES: usize = 64 * 1024;

/// A compressed request body that is being decoded.
#[derive(Debug)]
pub(crate) struct CompressedBody {
    /// The decoder; `None` only after a panic in offloaded work.
    decoder: Option<Box<BodyDecoder>>,
}

impl CompressedBody {
    /// Starts to decode a body. `bytes_max` limits the size of the decoded text, and `lease` grows with that text.
    pub(crate) fn new(coding: Coding, bytes_max: usize, lease: BodyReservation) -> Result<Self, Refusal> {
        let decoding = Decoding::new(coding, Following::Member, bytes_max).map_err(|_| Refusal::Internal)?;
        Ok(Self {
            decoder: Some(Box::new(BodyDecoder {
                coding,
                decoding,
                text: BytesMut::new(),
                end: JsonEnd::new(),
                is_complete: false,
                bytes_max,
                lease,
            })),
        })
    }

    /// Decodes the next piece of the body. If the body is large or the debt of its key is too high, the work waits for a turn of
    /// the key and is offloaded. The turn ends when the piece has been decoded, so a slow client does not block the key's other
    /// bodies. Returns true if the body may end here, because a compressed stream has ended and the JSON value is complete.
    pub(crate) async fn push(&mut self, mut piece: Bytes, work: &KeyWork) -> Result<bool, Refusal> {
        let mut turn = None;
        loop {
            let mut decoder = self.decoder.take().ok_or(Refusal::Internal)?;
            let stepped = if decoder.text.len() < AT_ONCE_DECODED_BYTES_MAX && work.can_run_now() {
                let (stepped, worked) = timed(|| decoder.step(&mut piece));
                if decoder.text.len() > FREE_BYTES_MAX {
                    work.charge(worked);
                }
                stepped
            } else {
                if turn.is_none() {
                    turn = Some(work.acquire_turn().await?);
                }
                let stepping = work.run_offloaded(move || {
                    let (stepped, worked) = timed(|| decoder.step(&mut piece));
                    (decoder, piece, stepped, worked)
                });
                let (stepped, worked);
                (decoder, piece, stepped, worked) = stepping.await?;
                work.charge(worked);
                work.pause().await;
                stepped
            };
            let may_end = decoder.decoding.has_ended() && decoder.is_complete;
            self.decoder = Some(decoder);
            if stepped? {
                return Ok(may_end);
            }
        }
    }

    /// Returns the decoded text with the lease of its memory. Fails if the compressed stream is incomplete.
    pub(crate) fn finish(self) -> Result<(Bytes, BodyReservation), Refusal> {
        let decoder = self.decoder.ok_or(Refusal::Internal)?;
        match decoder.decoding.has_ended() {
            true => Ok((decoder.text.freeze(), decoder.lease)),
            false => Err(decoder.invalid()),
        }
    }
}

/// The state of a body's decoding. It moves between threads when work is offloaded.
#[derive(Debug)]
struct BodyDecoder {
    coding: Coding,
    decoding: Decoding,
    text: BytesMut,
    /// Finds the end of the JSON value.
    end: JsonEnd,
    /// Whether the JSON value is complete. Another compressed stream may still follow.
    is_complete: bool,
    bytes_max: usize,
    lease: BodyReservation,
}

impl BodyDecoder {
    /// Decodes `rest` up to the size of one step. Returns true if all of `rest` is decoded.
    fn step(&mut self, rest: &mut Bytes) -> Result<bool, Refusal> {
        let until = self.text.len() + STEP_BYTES;
        let mut left = rest.as_ref();
        while self.text.len() < until {
            let part = match self.decoding.next(&mut left) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(true),
                Err(error) => return Err(self.refusal(error)),
            };
            body::grow_lease(&mut self.lease, part.len())?;
            self.text.extend_from_slice(part);
            self.is_complete = matches!(self.end.push(part), JsonEndProgress::CompleteAt(_));
        }
        let read = rest.len() - left.len();
        rest.advance(read);
        Ok(false)
    }

    fn refusal(&self, error: DecodingError) -> Refusal {
        match error {
            DecodingError::Broken(_) => self.invalid(),
            DecodingError::TooLarge => Refusal::BodyTooLargeDecoded {
                limit_bytes: self.bytes_max as u64,
            },
        }
    }

    fn invalid(&self) -> Refusal {
        Refusal::BodyEncodingInvalid {
            encoding: self.coding.as_str(),
        }
    }
}

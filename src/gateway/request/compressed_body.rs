//! Decodes a compressed request body while it arrives, up to the size limit, whatever the body claims.
//!
//! Memory holds the decoded text, in a buffer that grows with it and counts in the process-wide budget, and the
//! decoder's window, of which no more is touched than has been decoded. A decompression bomb therefore costs no more
//! than a plain body of the largest size.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::json_scan::{JsonEnd, Progress},
    },
    edges::body_budget::BodyLease,
    gateway::{
        coding::{
            Coding,
            decoding::{Decoding, DecodingError, Following},
        },
        request::{
            bodies,
            body_work::{FREE_BYTES_MAX, KeyWork, timed},
        },
    },
};

#[cfg(test)]
mod tests;

/// The most of a body that is decoded at once: about as much work as the rest of a request.
pub(crate) const AT_ONCE_DECODED_BYTES_MAX: usize = 64 * 1024;

/// Decoded bytes after which the key pays for them: a fraction of a millisecond.
const STEP_BYTES: usize = 64 * 1024;

/// A compressed request body being decoded.
#[derive(Debug)]
pub(crate) struct CompressedBody {
    /// Lost only with a panic.
    decoder: Option<Box<Decoder>>,
}

impl CompressedBody {
    /// For a body of which nothing has arrived. `bytes_max` limits the decoded text, and `lease` grows with it.
    pub(crate) fn new(coding: Coding, bytes_max: usize, lease: BodyLease) -> Result<Self, Refusal> {
        let decoding = Decoding::new(coding, Following::Member, bytes_max).map_err(|_| Refusal::Internal)?;
        Ok(Self {
            decoder: Some(Box::new(Decoder {
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

    /// Decodes the next piece; once the body has become large, or if its key owes too much, apart and in turns of its key. A turn ends with the piece, so
    /// that a client that sends slowly holds none. Returns true if the body may end here: a compressed stream has ended, and
    /// the JSON value is complete.
    pub(crate) async fn push(&mut self, mut piece: Bytes, work: &KeyWork) -> Result<bool, Refusal> {
        let mut turn = None;
        loop {
            let mut decoder = self.decoder.take().ok_or(Refusal::Internal)?;
            let stepped = if decoder.text.len() < AT_ONCE_DECODED_BYTES_MAX && work.may_at_once() {
                let (stepped, worked) = timed(|| decoder.step(&mut piece));
                if decoder.text.len() > FREE_BYTES_MAX {
                    work.charge(worked);
                }
                stepped
            } else {
                if turn.is_none() {
                    turn = Some(work.turn().await?);
                }
                let stepping = work.apart(move || {
                    let (stepped, worked) = timed(|| decoder.step(&mut piece));
                    (decoder, piece, stepped, worked)
                });
                let (stepped, worked);
                (decoder, piece, stepped, worked) = stepping.await?;
                work.charge(worked);
                work.rest().await;
                stepped
            };
            let may_end = decoder.decoding.has_ended() && decoder.is_complete;
            self.decoder = Some(decoder);
            if stepped? {
                return Ok(may_end);
            }
        }
    }

    /// The decoded text and its memory. Fails if the compressed stream is not complete.
    pub(crate) fn finish(self) -> Result<(Bytes, BodyLease), Refusal> {
        let decoder = self.decoder.ok_or(Refusal::Internal)?;
        match decoder.decoding.has_ended() {
            true => Ok((decoder.text.freeze(), decoder.lease)),
            false => Err(decoder.invalid()),
        }
    }
}

/// What goes from thread to thread while a body is decoded.
#[derive(Debug)]
struct Decoder {
    coding: Coding,
    decoding: Decoding,
    text: BytesMut,
    /// Looks for the end of the JSON value, and whether it has come: a compressed stream may be followed by another.
    end: JsonEnd,
    is_complete: bool,
    bytes_max: usize,
    lease: BodyLease,
}

impl Decoder {
    /// Decodes as much of `rest` as belongs to one step; true if that was all of it.
    fn step(&mut self, rest: &mut Bytes) -> Result<bool, Refusal> {
        let until = self.text.len() + STEP_BYTES;
        let mut left = rest.as_ref();
        while self.text.len() < until {
            let part = match self.decoding.next(&mut left) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(true),
                Err(error) => return Err(self.refusal(error)),
            };
            bodies::grow(&mut self.lease, part.len())?;
            self.text.extend_from_slice(part);
            self.is_complete = matches!(self.end.push(part), Progress::CompleteAt(_));
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

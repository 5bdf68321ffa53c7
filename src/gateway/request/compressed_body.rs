//! Decodes a compressed request body while it arrives, up to the size limit, whatever the body claims.
//!
//! Memory holds the decoded text, in a buffer that grows with it and counts in the process-wide budget, and the
//! decoder's window, of which no more is touched than has been decoded. A decompression bomb therefore costs no more
//! than a plain body of the largest size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{
    domain::faults::refusal::Refusal,
    edges::{body_budget::BodyLease, clock},
    gateway::{
        coding::{
            Coding,
            decoding::{Decoding, DecodingError, Following},
        },
        request::{bodies, body_work::KeyWork},
    },
};

#[cfg(test)]
mod tests;

/// Decoded bytes of a body that cost its key nothing: about as much work as the rest of a request.
pub(crate) const FREE_BYTES: usize = 64 * 1024;

/// Decoded bytes after which other requests of the thread go on: a fraction of a millisecond.
const STEP_BYTES: usize = 64 * 1024;

/// A compressed request body being decoded.
#[derive(Debug)]
pub(crate) struct CompressedBody {
    coding: Coding,
    decoding: Decoding,
    text: BytesMut,
    bytes_max: usize,
    /// The time that decoding has taken since the key last paid for it.
    worked: Duration,
}

impl CompressedBody {
    /// For a body of which nothing has arrived. `bytes_max` limits the decoded text.
    pub(crate) fn new(coding: Coding, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(Self {
            coding,
            decoding: Decoding::new(coding, Following::Nothing, bytes_max).map_err(|_| Refusal::Internal)?,
            text: BytesMut::new(),
            bytes_max,
            worked: Duration::ZERO,
        })
    }

    /// Decodes the next piece, in turns of the body's key once it has become large. A turn ends with the piece, so that a
    /// client that sends slowly holds none. Returns true at the end of the compressed stream, which is the end of the body.
    pub(crate) async fn push(&mut self, piece: &[u8], lease: &mut BodyLease, work: &KeyWork) -> Result<bool, Refusal> {
        let (mut rest, mut turn) = (piece, None);
        loop {
            if turn.is_none() && self.text.len() >= FREE_BYTES {
                turn = Some(work.turn().await?);
            }
            let began = clock::instant();
            let is_all = self.step(&mut rest, lease)?;
            if let Some(turn) = &turn {
                self.worked += clock::instant().saturating_duration_since(began);
                turn.rest(&mut self.worked).await;
            }
            if is_all {
                return Ok(self.decoding.has_ended());
            }
        }
    }

    /// Decodes as much of `rest` as belongs to one step; true if that was all of it.
    fn step(&mut self, rest: &mut &[u8], lease: &mut BodyLease) -> Result<bool, Refusal> {
        let until = self.text.len() + STEP_BYTES;
        while self.text.len() < until {
            let part = match self.decoding.next(rest) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(true),
                Err(error) => return Err(self.refusal(error)),
            };
            bodies::grow(lease, part.len())?;
            self.text.extend_from_slice(part);
        }
        Ok(false)
    }

    /// The decoded text. Fails if the compressed stream is not complete.
    pub(crate) fn finish(self) -> Result<Bytes, Refusal> {
        match self.decoding.has_ended() {
            true => Ok(self.text.freeze()),
            false => Err(self.invalid()),
        }
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

//! Decodes a compressed request body while it arrives, up to the size limit, whatever the body claims.
//!
//! Memory holds the decoded text, in a buffer that grows with it and counts in the process-wide budget, and the
//! decoder's window, of which no more is touched than has been decoded. A decompression bomb therefore costs no more
//! than a plain body of the largest size.

use bytes::{Bytes, BytesMut};

use crate::{
    domain::faults::refusal::Refusal,
    edges::body_budget::BodyLease,
    gateway::coding::{
        Coding,
        decoding::{Decoding, DecodingError, Following},
    },
};

#[cfg(test)]
mod tests;

/// Decoded bytes after which the task yields to other requests of its thread.
const TURN_BYTES: usize = 512 * 1024;

/// A compressed request body being decoded.
#[derive(Debug)]
pub(crate) struct CompressedBody {
    coding: Coding,
    decoding: Decoding,
    text: BytesMut,
    bytes_max: usize,
    /// Bytes decoded since the task last yielded.
    turn: usize,
}

impl CompressedBody {
    /// For a body of which nothing has arrived. `bytes_max` limits the decoded text.
    pub(crate) fn new(coding: Coding, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(Self {
            coding,
            decoding: Decoding::new(coding, Following::Nothing, bytes_max).map_err(|_| Refusal::Internal)?,
            text: BytesMut::new(),
            bytes_max,
            turn: 0,
        })
    }

    /// Decodes the next piece. Returns true at the end of the compressed stream, which is the end of the body.
    pub(crate) async fn push(&mut self, piece: &[u8], lease: &mut BodyLease) -> Result<bool, Refusal> {
        let mut rest = piece;
        loop {
            let part = match self.decoding.next(&mut rest) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(self.decoding.has_ended()),
                Err(error) => return Err(self.refusal(error)),
            };
            if !lease.grow(part.len() as u64) {
                return Err(Refusal::BodyBudgetExhausted);
            }
            self.text.extend_from_slice(part);
            self.turn += part.len();
            if self.turn >= TURN_BYTES {
                self.turn = 0;
                tokio::task::yield_now().await;
            }
        }
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

//! Decodes a compressed request body while it arrives, up to the size limit, whatever the body claims.
//!
//! Memory holds the decoded text, in a buffer that grows with it and counts in the process-wide budget, and the
//! decoder's window, of which no more is touched than has been decoded. A decompression bomb therefore costs no more
//! than a plain body of the largest size.

use bytes::{Bytes, BytesMut};

use crate::{
    body_budget::BodyLease,
    domain::refusal::Refusal,
    gateway::coding::{Coding, Decoder},
};

#[cfg(test)]
mod tests;

/// Decoded bytes per step.
const STEP_BYTES: usize = 16 * 1024;

/// Decoded bytes after which the task yields to other requests of its thread.
const TURN_BYTES: usize = 512 * 1024;

/// A compressed request body being decoded.
#[derive(Debug)]
pub struct Unpacked {
    coding: Coding,
    decoder: Decoder,
    text: BytesMut,
    bytes_max: usize,
    /// Bytes decoded since the task last yielded.
    turn: usize,
}

impl Unpacked {
    /// For a body of which nothing has arrived. `bytes_max` limits the decoded text.
    pub fn new(coding: Coding, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(Self {
            coding,
            decoder: Decoder::new(coding).map_err(|_| Refusal::Internal)?,
            text: BytesMut::new(),
            bytes_max,
            turn: 0,
        })
    }

    /// Decodes the next piece. Returns true at the end of the compressed stream, which is the end of the body.
    pub async fn push(&mut self, piece: &[u8], lease: &mut BodyLease) -> Result<bool, Refusal> {
        let mut rest = piece;
        loop {
            let start = self.text.len();
            // One byte more than allowed, to tell a body that is too large from one that just fits.
            let room = (self.bytes_max + 1).saturating_sub(start).min(STEP_BYTES);
            self.text.resize(start + room, 0);
            let output = self.text.get_mut(start..).unwrap_or_default();
            let step = self.decoder.step(rest, output).map_err(|_| self.broken())?;
            self.text.truncate(start + step.written);
            rest = rest.get(step.read..).unwrap_or_default();
            if self.text.len() > self.bytes_max {
                return Err(Refusal::BodyTooLargeDecoded {
                    limit_bytes: self.bytes_max as u64,
                });
            }
            if !lease.grow(step.written as u64) {
                return Err(Refusal::BodyBudgetExhausted);
            }
            if self.decoder.has_ended() {
                return if rest.is_empty() { Ok(true) } else { Err(self.broken()) };
            }
            if step.read == 0 && step.written == 0 {
                return Ok(false);
            }
            self.turn += step.written;
            if self.turn >= TURN_BYTES {
                self.turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// The decoded text. Fails if the compressed stream is not complete.
    pub fn finish(self) -> Result<Bytes, Refusal> {
        if self.decoder.has_ended() {
            Ok(self.text.freeze())
        } else {
            Err(self.broken())
        }
    }

    fn broken(&self) -> Refusal {
        Refusal::BodyEncodingInvalid {
            encoding: self.coding.as_str(),
        }
    }
}

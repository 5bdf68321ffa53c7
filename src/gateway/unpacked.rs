//! A compressed request body, decoded while it arrives: never more of it than a request may have, whatever it claims.
//!
//! What is held is the decoded text, in a buffer that grows with it and is counted in the process-wide budget, and the
//! decoder's window, of which no more is touched than has been decoded. So a bomb costs what a plain body of the largest
//! size costs.

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

/// Decoded bytes after which other requests of the thread get their turn.
const TURN_BYTES: usize = 512 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Unpacked {
    coding: Coding,
    decoder: Decoder,
    text: BytesMut,
    bytes_max: usize,
    /// Decoded since the thread was last given up.
    turn: usize,
}

impl Unpacked {
    /// Nothing has come yet; `bytes_max` bounds the decoded text.
    pub fn new(coding: Coding, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(Self {
            coding,
            decoder: Decoder::new(coding).map_err(|_| Refusal::Internal)?,
            text: BytesMut::new(),
            bytes_max,
            turn: 0,
        })
    }

    /// Takes the next piece as it came. True when the compressed stream has ended, and with it the body.
    pub async fn push(&mut self, piece: &[u8], lease: &mut BodyLease) -> Result<bool, Refusal> {
        let mut rest = piece;
        loop {
            let start = self.text.len();
            // Room for one byte more than allowed: only with it is too much told from just enough.
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

    /// The decoded text, once all has come.
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

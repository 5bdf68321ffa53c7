//! Masks the credential in the errors inside an answer, while the answer passes.
//!
//! Messages of an answer (events, elements of an array, a body that is not a stream) pass as they arrive. Of a message that may
//! still be an error, only those bytes wait that resemble the credential, or may do so with the next bytes. Each masked byte
//! becomes an asterisk, so that the length does not change.

use memchr::memmem;

use super::{
    credential_search::CredentialSearch,
    redact::{can_be_masked, mask_in_place, mask_range},
};
use crate::domain::wire::protocol::MessageBoundaries;

/// The maximum number of bytes that wait until it is known whether they belong to an error. Errors are short: in a longer
/// message, only the credential itself is masked, which belongs in no answer, and everything else passes.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// The mask of one answer.
#[derive(Debug, Default)]
pub(crate) struct PassingMask {
    /// The last bytes of the message in progress, from the first one that may have to be masked.
    waiting: Vec<u8>,
    /// Whether a part of the waiting bytes resembles the credential: then all wait until it is known if they belong to an error.
    resembles: bool,
    has_masked: bool,
}

/// The bytes of a piece that can pass now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MaskedPiece {
    /// This many of its first bytes, unchanged.
    First(usize),
    /// These bytes instead of it.
    Instead(Vec<u8>),
}

impl PassingMask {
    /// Handles the next piece of the answer, with the observer's boundaries. The bytes that pass do not depend on how the answer
    /// is split.
    pub(crate) fn push(&mut self, piece: &[u8], boundaries: MessageBoundaries, credential: &str) -> MaskedPiece {
        let MessageBoundaries { error_from, open_from } = boundaries;
        let is_plain = self.is_plain(boundaries);
        if self.can_pass(piece, boundaries) || !can_be_masked(credential.as_bytes()) {
            return MaskedPiece::First(piece.len());
        }
        let search = CredentialSearch::new(credential.as_bytes());
        let open = piece.get(open_from..).unwrap_or_default();
        if is_plain {
            let (suspected, resembles) = search.suspected_from(open);
            if open.len() - suspected <= WAITING_BYTES_MAX {
                self.resembles = resembles;
                self.waiting
                    .extend_from_slice(open.get(suspected..).unwrap_or_default());
                return MaskedPiece::First(open_from + suspected);
            }
        }
        let mut out = Vec::new();
        let error_from = error_from.unwrap_or(open_from).min(open_from);
        if error_from > 0 {
            // The waiting bytes did not belong to an error.
            out.append(&mut self.waiting);
            self.resembles = false;
            out.extend_from_slice(piece.get(..error_from).unwrap_or_default());
        }
        if error_from < open_from {
            let errors = piece.get(error_from..open_from).unwrap_or_default();
            self.waiting.extend_from_slice(errors);
            self.release(&search, &mut out);
        }
        self.waiting.extend_from_slice(open);
        if !self.resembles {
            let (suspected, resembles) = search.suspected_from(&self.waiting);
            out.extend(self.waiting.drain(..suspected));
            self.resembles = resembles;
        }
        if self.waiting.len() > WAITING_BYTES_MAX {
            self.release_long(&search, credential.as_bytes(), &mut out);
        }
        MaskedPiece::Instead(out)
    }

    /// Whether the next piece passes unchanged, whatever the credential: it consists of complete messages that are not errors.
    pub(crate) fn can_pass(&self, piece: &[u8], boundaries: MessageBoundaries) -> bool {
        self.is_plain(boundaries) && boundaries.open_from >= piece.len()
    }

    /// Whether nothing waits and no error has arrived.
    fn is_plain(&self, boundaries: MessageBoundaries) -> bool {
        self.waiting.is_empty() && boundaries.error_from.is_none()
    }

    /// Ends the answer, perhaps within a message: the waiting bytes are masked as if they belonged to an error.
    pub(crate) fn finish(&mut self, credential: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.waiting.is_empty() {
            self.release(&CredentialSearch::new(credential.as_bytes()), &mut out);
        }
        out
    }

    /// Whether anything was masked.
    pub(crate) fn has_masked(&self) -> bool {
        self.has_masked
    }

    /// Whether bytes wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn release(&mut self, search: &CredentialSearch<'_>, out: &mut Vec<u8>) {
        self.has_masked |= mask_in_place(&mut self.waiting, search);
        out.append(&mut self.waiting);
        self.resembles = false;
    }

    /// Releases the waiting bytes, except for an end that may still become the credential.
    fn release_long(&mut self, search: &CredentialSearch<'_>, credential: &[u8], out: &mut Vec<u8>) {
        let places: Vec<usize> = memmem::find_iter(&self.waiting, credential).collect();
        for at in &places {
            mask_range(&mut self.waiting, *at..*at + credential.len());
        }
        self.has_masked |= !places.is_empty();
        let masked_to = places.last().map_or(0, |at| at + credential.len());
        let unfinished = search.unfinished_from(&self.waiting).max(masked_to);
        out.extend(self.waiting.drain(..unfinished));
        self.resembles = false;
    }
}

#[cfg(test)]
mod tests;

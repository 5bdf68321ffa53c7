//! Masks the credential in what of an answer is an error, while the answer passes.
//!
//! Messages of an answer (events, elements of an array, a body in one piece) pass as they come. Of a message of which it is not
//! known yet whether it is an error, only that waits which resembles the credential, or may with the next bytes. Each byte that is
//! masked becomes an asterisk, so that the length stays.

use memchr::memmem;

use super::{
    credential_search::CredentialSearch,
    redact::{can_be_masked, hide, mask_in_place},
};
use crate::domain::wire::protocol::Boundaries;

/// Bytes that wait at most until it is known whether they are of an error. Errors are short: in a longer message only the
/// credential itself is masked, which belongs into no answer, and everything else passes.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// The mask of one answer.
#[derive(Debug, Default)]
pub(crate) struct PassingMask {
    /// The last bytes of the message in progress, from the first that may have to be masked.
    waiting: Vec<u8>,
    /// What waits has a part that resembles the credential: all of it waits until it is known whether it is of an error.
    resembles: bool,
    has_masked: bool,
}

/// What of a piece can go on now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Its first bytes, as they are.
    First(usize),
    /// These bytes in its place.
    Instead(Vec<u8>),
}

impl PassingMask {
    /// Takes the next piece of the answer, and how the observer has divided it. However an answer is split, the same bytes go on.
    pub(crate) fn push(&mut self, piece: &[u8], boundaries: Boundaries, credential: &str) -> Passing {
        let Boundaries { error_from, open_from } = boundaries;
        let is_plain = self.is_plain(boundaries);
        if self.passes(piece, boundaries) || !can_be_masked(credential.as_bytes()) {
            return Passing::First(piece.len());
        }
        let search = CredentialSearch::new(credential.as_bytes());
        let open = piece.get(open_from..).unwrap_or_default();
        if is_plain {
            let (suspected, resembles) = search.suspected_from(open);
            if open.len() - suspected <= WAITING_BYTES_MAX {
                self.resembles = resembles;
                self.waiting
                    .extend_from_slice(open.get(suspected..).unwrap_or_default());
                return Passing::First(open_from + suspected);
            }
        }
        let mut out = Vec::new();
        let error_from = error_from.unwrap_or(open_from).min(open_from);
        if error_from > 0 {
            // What waits was of no error.
            out.append(&mut self.waiting);
            self.resembles = false;
            out.extend_from_slice(piece.get(..error_from).unwrap_or_default());
        }
        if error_from < open_from {
            let errors = piece.get(error_from..open_from).unwrap_or_default();
            self.waiting.extend_from_slice(errors);
            self.let_out(&search, &mut out);
        }
        self.waiting.extend_from_slice(open);
        if !self.resembles {
            let (suspected, resembles) = search.suspected_from(&self.waiting);
            out.extend(self.waiting.drain(..suspected));
            self.resembles = resembles;
        }
        if self.waiting.len() > WAITING_BYTES_MAX {
            self.let_out_long(&search, credential.as_bytes(), &mut out);
        }
        Passing::Instead(out)
    }

    /// Whether the next piece goes on as it is, whatever the credential: all of it belongs to whole messages of an answer.
    pub(crate) fn passes(&self, piece: &[u8], boundaries: Boundaries) -> bool {
        self.is_plain(boundaries) && boundaries.open_from >= piece.len()
    }

    /// Whether nothing waits and no error has come.
    fn is_plain(&self, boundaries: Boundaries) -> bool {
        self.waiting.is_empty() && boundaries.error_from.is_none()
    }

    /// The answer is over, or broke off, within a message: what waits is masked as if it were of an error.
    pub(crate) fn finish(&mut self, credential: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.waiting.is_empty() {
            self.let_out(&CredentialSearch::new(credential.as_bytes()), &mut out);
        }
        out
    }

    /// Whether the credential, or something that resembles it, has stood in an error.
    pub(crate) fn has_masked(&self) -> bool {
        self.has_masked
    }

    /// Whether bytes wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn let_out(&mut self, search: &CredentialSearch<'_>, out: &mut Vec<u8>) {
        self.has_masked |= mask_in_place(&mut self.waiting, search);
        out.append(&mut self.waiting);
        self.resembles = false;
    }

    /// Lets out all that waits but for an end that may still become the credential.
    fn let_out_long(&mut self, search: &CredentialSearch<'_>, credential: &[u8], out: &mut Vec<u8>) {
        let places: Vec<usize> = memmem::find_iter(&self.waiting, credential).collect();
        for at in &places {
            hide(&mut self.waiting, *at..*at + credential.len());
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

//! Masks the operator's credential in errors within a body that passes.

use bytes::{Bytes, BytesMut};

use crate::{
    domain::wire::protocol::{
        Boundaries,
        provider_error::passing_mask::{Passing, PassingMask},
    },
    gateway::outlet::append,
};

/// Compressed bytes that wait at most for what they say to be known.
const CODED_BYTES_MAX: usize = 64 * 1024;

/// The mask in front of a body's outlet. The credential is asked for only where something may have to be masked.
#[derive(Debug, Default)]
pub(crate) struct Masking {
    mask: PassingMask,
    /// Compressed bytes that wait until it is known whether they are of an error.
    coded: BytesMut,
}

/// The credential stands in an error within a compressed body, where nothing can be masked.
#[derive(Debug)]
pub(crate) struct CannotMask;

impl Masking {
    /// Replaces a piece of a body that is not compressed by what can go on of it, masked.
    pub(crate) fn pass<'s>(
        &mut self,
        piece: &mut Option<Bytes>,
        boundaries: Boundaries,
        credential: impl FnOnce() -> &'s str,
    ) {
        let Some(bytes) = piece.as_mut() else { return };
        if !bytes.is_empty() && self.mask.passes(bytes, boundaries) {
            return;
        }
        match self.mask.push(bytes, boundaries, credential()) {
            Passing::First(length) => bytes.truncate(length),
            Passing::Instead(masked) => *bytes = masked.into(),
        }
        if bytes.is_empty() {
            *piece = None;
        }
    }

    /// Sees decoded bytes of a compressed body, before [`Masking::pass_coded`].
    pub(crate) fn see_decoded(&mut self, text: &[u8], boundaries: Boundaries, credential: &str) {
        // Only what waits and what was masked matters: the client gets the compressed bytes.
        let _ = self.mask.push(text, boundaries, credential);
    }

    /// Replaces a piece of a compressed body by what can go on of it.
    ///
    /// # Errors
    /// What it says has the credential in an error.
    pub(crate) fn pass_coded(&mut self, piece: &mut Option<Bytes>) -> Result<(), CannotMask> {
        if self.mask.has_masked() {
            return Err(CannotMask);
        }
        let coming = piece.as_ref().map_or(0, Bytes::len);
        if self.mask.is_waiting() && self.coded.len() + coming <= CODED_BYTES_MAX {
            self.coded.extend_from_slice(&piece.take().unwrap_or_default());
        } else if !self.coded.is_empty() {
            self.coded.extend_from_slice(&piece.take().unwrap_or_default());
            *piece = Some(self.coded.split().freeze());
        }
        Ok(())
    }

    /// Ends the body: adds what waits behind the last piece, masked.
    pub(crate) fn finish(&mut self, piece: &mut Option<Bytes>, credential: &str) {
        let rest = self.rest(credential);
        if !rest.is_empty() {
            append(piece, &rest);
        }
    }

    /// What an answer that breaks off still has in hand, masked.
    pub(crate) fn rest(&mut self, credential: &str) -> Vec<u8> {
        self.mask.finish(credential)
    }
}

//! Masks the operator's credential in errors within a body that passes.

use bytes::{Bytes, BytesMut};

use crate::{
    domain::wire::protocol::{
        MessageBoundaries,
        provider_error::passing_mask::{MaskedPiece, PassingMask},
    },
    gateway::outlet::append,
};

/// The most compressed bytes that wait until their text is known.
const CODED_BYTES_MAX: usize = 64 * 1024;

/// Masks the operator's credential in errors within a body that passes. Reads the credential only if something may have to be
/// masked.
#[derive(Debug, Default)]
pub(crate) struct Masking {
    mask: PassingMask,
    /// Compressed bytes that wait until it is known whether they belong to an error.
    coded: BytesMut,
}

/// An error within a compressed body repeats the credential, where it cannot be masked.
#[derive(Debug)]
pub(crate) struct MaskFailure;

impl Masking {
    /// Replaces a piece of an uncompressed body by the bytes that can pass now, masked.
    pub(crate) fn pass<'s>(
        &mut self,
        piece: &mut Option<Bytes>,
        boundaries: MessageBoundaries,
        credential: impl FnOnce() -> &'s str,
    ) {
        let Some(bytes) = piece.as_mut() else { return };
        if !bytes.is_empty() && self.mask.can_pass(bytes, boundaries) {
            return;
        }
        match self.mask.push(bytes, boundaries, credential()) {
            MaskedPiece::First(length) => bytes.truncate(length),
            MaskedPiece::Instead(masked) => *bytes = masked.into(),
        }
        if bytes.is_empty() {
            *piece = None;
        }
    }

    /// Observes decoded bytes of a compressed body, before [`Masking::pass_coded`].
    pub(crate) fn observe_decoded(&mut self, text: &[u8], boundaries: MessageBoundaries, credential: &str) {
        // Only whether bytes wait or were masked matters: the client gets the compressed bytes.
        let _ = self.mask.push(text, boundaries, credential);
    }

    /// Replaces a piece of a compressed body by the bytes that can pass now.
    ///
    /// # Errors
    /// An error in its text repeats the credential.
    pub(crate) fn pass_coded(&mut self, piece: &mut Option<Bytes>) -> Result<(), MaskFailure> {
        if self.mask.has_masked() {
            return Err(MaskFailure);
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

    /// Ends the body: appends the waiting bytes to the last piece, masked.
    pub(crate) fn finish(&mut self, piece: &mut Option<Bytes>, credential: &str) {
        let rest = self.remaining(credential);
        if !rest.is_empty() {
            append(piece, &rest);
        }
    }

    /// The waiting bytes of an answer that breaks off, masked.
    pub(crate) fn remaining(&mut self, credential: &str) -> Vec<u8> {
        self.mask.finish(credential)
    }
}

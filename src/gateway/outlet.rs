//! The outlet: how an answer's body reaches the client.

pub(crate) mod masking;
pub(crate) mod possible_error;
pub(crate) mod unbegun;
pub(crate) mod withheld_error;

use bytes::{Bytes, BytesMut};

use crate::{
    domain::rules::ResponseRewriter,
    gateway::outlet::{
        possible_error::PossibleError,
        withheld_error::{ErrorReply, WithheldError},
    },
};

/// How the body reaches the client. Chosen with the answer's head. Rare state is boxed, because each piece reads the variant.
#[derive(Debug, Default)]
pub(crate) enum Outlet {
    /// Unchanged.
    #[default]
    Pass,
    /// Edited by the rules of the provider's file.
    Rewrite(Box<ResponseRewriter>),
    /// A success in one piece that may be an error in the provider's own shape.
    PossibleError(Box<PossibleError>),
    /// An error answer, withheld until its end.
    Withheld(Box<WithheldError>),
    /// A complete error answer, sent to the client once Pingora is done with the provider.
    ErrorReply(Box<ErrorReply>),
}

impl Outlet {
    /// Whether the length of the client's body may differ from that of the provider's.
    pub(crate) fn may_change_length(&self) -> bool {
        match self {
            Self::Rewrite(_) | Self::PossibleError(_) => true,
            Self::Pass | Self::Withheld(_) | Self::ErrorReply(_) => false,
        }
    }

    /// The remaining bytes of an answer that breaks off after `last`, with the buffered part of an edited event.
    pub(crate) fn remaining(&mut self, last: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Rewrite(rewriter) => {
                let mut rest = rewriter.push(&last);
                rest.extend(rewriter.finish());
                rest
            }
            Self::Pass | Self::PossibleError(_) | Self::Withheld(_) | Self::ErrorReply(_) => last,
        }
    }
}

/// Replaces a piece of the provider's bytes, or the end, by the edited bytes.
pub(crate) fn rewrite(rewriter: &mut ResponseRewriter, piece: &mut Option<Bytes>, end: bool) {
    let mut edited = piece.take().map(|bytes| rewriter.push(&bytes)).unwrap_or_default();
    if end {
        edited.extend(rewriter.finish());
    }
    if !edited.is_empty() {
        *piece = Some(edited.into());
    }
}

/// Appends bytes to a piece.
pub(crate) fn append(piece: &mut Option<Bytes>, tail: &[u8]) {
    let mut joined = BytesMut::from(piece.as_deref().unwrap_or_default());
    joined.extend_from_slice(tail);
    *piece = Some(joined.freeze());
}

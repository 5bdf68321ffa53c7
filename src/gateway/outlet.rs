//! The one way by which an answer's body leaves for the client.

pub(crate) mod masking;
pub(crate) mod possible_error;
pub(crate) mod unbegun;
pub(crate) mod withheld_error;

use bytes::{Bytes, BytesMut};

use crate::{
    domain::rules::ResponseRewriter,
    gateway::outlet::{
        possible_error::PossibleError,
        withheld_error::{WholeError, WithheldError},
    },
};

/// How the body leaves for the client. Chosen with the answer's head. What seldom is needed lies apart: each piece asks which it is.
#[derive(Debug, Default)]
pub(crate) enum Outlet {
    /// As it comes.
    #[default]
    Pass,
    /// Edited, because the provider's file says so.
    Rewrite(Box<ResponseRewriter>),
    /// A success in one piece that may be an error in the provider's own shape.
    PossibleError(Box<PossibleError>),
    /// An error answer, withheld until its end.
    Withheld(Box<WithheldError>),
    /// A complete error answer, sent to the client once Pingora is done with the provider.
    WholeError(Box<WholeError>),
}

impl Outlet {
    /// Whether the body that leaves may differ in length from the provider's.
    pub(crate) fn may_change_length(&self) -> bool {
        match self {
            Self::Rewrite(_) | Self::PossibleError(_) => true,
            Self::Pass | Self::Withheld(_) | Self::WholeError(_) => false,
        }
    }

    /// What an answer that breaks off with these bytes still has in hand: also the buffered part of an edited event.
    pub(crate) fn rest(&mut self, last: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Rewrite(rewriter) => {
                let mut rest = rewriter.push(&last);
                rest.extend(rewriter.finish());
                rest
            }
            Self::Pass | Self::PossibleError(_) | Self::Withheld(_) | Self::WholeError(_) => last,
        }
    }
}

/// Replaces a piece, or the end, of the provider's bytes by the edited ones.
pub(crate) fn rewrite(rewriter: &mut ResponseRewriter, piece: &mut Option<Bytes>, end: bool) {
    let mut edited = piece.take().map(|bytes| rewriter.push(&bytes)).unwrap_or_default();
    if end {
        edited.extend(rewriter.finish());
    }
    if !edited.is_empty() {
        *piece = Some(edited.into());
    }
}

/// Adds bytes behind a piece.
pub(crate) fn append(piece: &mut Option<Bytes>, tail: &[u8]) {
    let mut joined = BytesMut::from(piece.as_deref().unwrap_or_default());
    joined.extend_from_slice(tail);
    *piece = Some(joined.freeze());
}

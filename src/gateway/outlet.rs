//! The outlet: the way in which an answer's body reaches the client.

use bytes::{Bytes, BytesMut};
use pingora::http::ResponseHeader;

use crate::{
    domain::{
        rules::ResponseRewriter,
        wire::protocol::{
            AnswerFraming, ErrorForm, MessageBoundaries,
            provider_error::{
                credential_mask::{MaskedPiece, PassingMask},
                failure_in_success, redact, reshape_error,
            },
        },
    },
    gateway::{
        coding::{
            Coding, MessageCoding,
            decoding::{Decoding, Following},
        },
        request::translation::AnswerTranslation,
    },
};

/// The way in which an answer's body reaches the client. It is chosen when the answer's head arrives. Rarely used data is boxed,
/// because the value is read for each piece and should be small.
#[derive(Debug, Default)]
pub(crate) enum Outlet {
    /// The body passes unchanged.
    #[default]
    Pass,
    /// The body is edited by the rules of the provider's file.
    Rewrite(Box<ResponseRewriter>),
    /// The body is a non-streaming success that may be an error in the provider's own format.
    PossibleError(Box<PossibleError>),
    /// The answer is an error, which is withheld until its end.
    Withheld(Box<WithheldError>),
    /// The answer is a complete error. The client gets it once Pingora has finished with the provider.
    ErrorReply(Box<ErrorReply>),
    /// The body is translated into the client's protocol.
    Translate(Box<AnswerTranslation>),
}

impl Outlet {
    /// Whether the body that the client gets may differ in length from the provider's.
    pub(crate) fn may_change_length(&self) -> bool {
        match self {
            Self::Rewrite(_) | Self::PossibleError(_) | Self::Translate(_) => true,
            Self::Pass | Self::Withheld(_) | Self::ErrorReply(_) => false,
        }
    }

    /// Returns the remaining bytes of an answer that breaks off. `last` contains the last bytes from the provider. If the body is
    /// edited, `last` is edited, too, and the buffered part of an event is included.
    pub(crate) fn remaining(&mut self, last: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Rewrite(rewriter) => {
                let mut rest = rewriter.push(&last);
                rest.extend(rewriter.finish());
                rest
            }
            Self::Pass | Self::PossibleError(_) | Self::Withheld(_) | Self::ErrorReply(_) | Self::Translate(_) => last,
        }
    }
}

/// Replaces a piece of the provider's body, or its end, with the edited bytes.
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

/// The maximum number of bytes of a body that weir holds while it does not know whether the body is an answer or an error. A
/// longer body is passed on, because errors are short.
pub(crate) const UNBEGUN_BYTES_MAX: usize = 64 * 1024;

/// A successful answer whose head is held, so that the client has received nothing of it.
#[derive(Debug)]
pub(crate) struct UnbegunAnswer {
    /// The framing that the answer's head announces.
    pub announced: AnswerFraming,
    held: BytesMut,
}

impl UnbegunAnswer {
    /// Creates a success whose body has not begun to arrive.
    pub(crate) fn new(announced: AnswerFraming) -> Self {
        Self {
            announced,
            held: BytesMut::new(),
        }
    }

    /// The part of the answer's body that has arrived.
    pub(crate) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Appends a piece to the held part of the answer's body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// Returns the answer's body so far, followed by `piece`.
    pub(crate) fn into_body(mut self, piece: Option<Bytes>) -> Option<Bytes> {
        if self.held.is_empty() {
            return piece;
        }
        self.held.extend_from_slice(&piece.unwrap_or_default());
        Some(self.held.freeze())
    }
}

/// The maximum size in bytes of an answer that may be an error. Errors are short.
const POSSIBLE_ERROR_BYTES_MAX: usize = 64 * 1024;

/// A buffered answer that may be an error. Some providers send an error in their own format with the status 200. If the
/// provider's file requires errors to be reshaped, weir buffers a JSON answer until weir knows whether the answer is a success or
/// an error.
#[derive(Debug, Default)]
pub(crate) struct PossibleError {
    /// Edits the answer before it is buffered; `None` if the provider's file has no rules for editing answers.
    pub rewriter: Option<ResponseRewriter>,
    held: BytesMut,
    /// Whether the answer is too long to be an error, so that further pieces are passed on.
    cleared: bool,
}

impl PossibleError {
    /// Creates an empty answer.
    pub(crate) fn new(rewriter: Option<ResponseRewriter>) -> Self {
        Self {
            rewriter,
            ..Self::default()
        }
    }

    /// Adds a piece. Returns the bytes that can go to the client; `None` while the answer is buffered.
    pub(crate) fn push(&mut self, piece: Bytes) -> Option<Bytes> {
        if self.cleared {
            return Some(piece);
        }
        self.held.extend_from_slice(&piece);
        if self.held.len() <= POSSIBLE_ERROR_BYTES_MAX {
            return None;
        }
        self.cleared = true;
        Some(self.held.split().freeze())
    }

    /// Ends the answer. Returns the buffered bytes. If the answer is an error, the credential in it is masked, and the error is
    /// converted to `form`. Any other answer is unchanged.
    pub(crate) fn finish(self, form: ErrorForm, credential: &str, request_id: &str) -> Bytes {
        let held = self.held.freeze();
        match failure_in_success(&held).filter(|_| !self.cleared) {
            None => held,
            Some(status) => {
                let masked = redact(&held, credential).map_or(held, Bytes::from);
                reshape_error(form, status, &masked, request_id).into()
            }
        }
    }
}

/// The maximum size in bytes of an error answer that weir buffers, both as received and as decoded. A longer one is replaced by
/// weir's own error.
const ERROR_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An error answer that is withheld from the client until its end.
#[derive(Debug)]
pub(crate) struct WithheldError {
    /// The head of the provider's answer.
    pub head: ResponseHeader,
    coded: MessageCoding,
    body: BytesMut,
    too_large: bool,
    /// The part of the answer that determines the attempt's verdict.
    pub judgement: ErrorJudgement,
}

/// The part of an error answer that determines the attempt's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorJudgement {
    /// The status alone. The verdict has already been decided.
    ByStatus,
    /// The body. The verdict is decided at the answer's end.
    Not,
    /// The body of an answer that the provider sent with the status of a success. The verdict is decided at the answer's end.
    NotInSuccess,
}

/// A complete error answer, ready for the client.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    /// The head for the client.
    pub head: ResponseHeader,
    /// The body for the client.
    pub body: Bytes,
}

impl WithheldError {
    /// Creates an error answer whose body has not begun to arrive.
    pub(crate) fn new(head: ResponseHeader, coded: MessageCoding, judgement: ErrorJudgement) -> Self {
        Self {
            head,
            coded,
            body: BytesMut::new(),
            too_large: false,
            judgement,
        }
    }

    /// Appends a piece of the answer's body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.body.len() + piece.len() > ERROR_BODY_BYTES_MAX {
            self.too_large = true;
        } else {
            self.body.extend_from_slice(piece);
        }
    }

    /// Takes the decoded body; returns `None` if it cannot be decoded or exceeds the limit.
    pub(crate) fn take_text(&mut self) -> Option<Bytes> {
        let body = std::mem::take(&mut self.body);
        if self.too_large {
            return None;
        }
        match &self.coded {
            MessageCoding::No => Some(body.freeze()),
            MessageCoding::By(coding) => decode(*coding, &body),
            MessageCoding::Otherwise(_) => None,
        }
    }
}

fn decode(coding: Coding, bytes: &[u8]) -> Option<Bytes> {
    let mut decoding = Decoding::new(coding, Following::Nothing, ERROR_BODY_BYTES_MAX).ok()?;
    let (mut rest, mut text) = (bytes, BytesMut::new());
    while let Some(part) = decoding.next(&mut rest).ok()? {
        text.extend_from_slice(part);
    }
    decoding.has_ended().then(|| text.freeze())
}

/// The maximum number of compressed bytes that are held back while weir does not know whether their decoded text belongs to an
/// error.
const CODED_BYTES_MAX: usize = 64 * 1024;

/// Masks the operator's credential in errors within a body that is passed on. Reads the credential only if the body may contain
/// it.
#[derive(Debug, Default)]
pub(crate) struct Masking {
    mask: PassingMask,
    /// Compressed bytes that are held back while weir does not know whether their decoded text belongs to an error.
    coded: BytesMut,
}

/// The error for a compressed body in which an error message repeats the credential. weir cannot mask the credential there.
#[derive(Debug)]
pub(crate) struct MaskFailure;

impl Masking {
    /// Replaces a piece of an uncompressed body with the bytes that can pass now, with the credential masked.
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

    /// Observes decoded bytes of a compressed body. Called before [`Masking::pass_coded`].
    pub(crate) fn observe_decoded(&mut self, text: &[u8], boundaries: MessageBoundaries, credential: &str) {
        // The masked text is discarded, because the client gets the compressed bytes. The only use of the mask is to know whether
        // text waits or was masked.
        let _ = self.mask.push(text, boundaries, credential);
    }

    /// Replaces a piece of a compressed body with the bytes that can pass now.
    ///
    /// # Errors
    /// An error within the body's text repeats the credential.
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

    /// Ends the body. Appends the bytes that were held back to the last piece, with the credential masked.
    pub(crate) fn finish(&mut self, piece: &mut Option<Bytes>, credential: &str) {
        let rest = self.remaining(credential);
        if !rest.is_empty() {
            append(piece, &rest);
        }
    }

    /// Returns the bytes that were held back when the answer broke off, with the credential masked.
    pub(crate) fn remaining(&mut self, credential: &str) -> Vec<u8> {
        self.mask.finish(credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::wire::protocol::Protocol, gateway::coding::tests::packed};

    fn through(pieces: &[&[u8]]) -> Vec<u8> {
        let mut possible = PossibleError::default();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(possible.push(Bytes::copy_from_slice(piece)).unwrap_or_default());
        }
        out.extend(possible.finish(Protocol::Messages.into(), "secret-secret-secret", "req_1"));
        out
    }

    #[test]
    fn an_error_is_reshaped_and_masked_and_everything_else_passes() {
        let error = through(&[
            br#"{"code":401,"msg":"token secret-secret"#,
            br#"-secret expired","success":false}"#,
        ]);
        let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
        assert_eq!(error["type"], "error");
        assert_eq!(error["error"]["type"], "authentication_error");
        assert!(!error.to_string().contains("secret-secret-secret"));
        let good: &[u8] = br#"{"type":"message","content":[]}"#;
        assert_eq!(through(&[good]), good);
        assert_eq!(through(&[]), b"");
    }

    #[test]
    fn what_is_too_long_for_an_error_passes_at_once() {
        let long = vec![b' '; POSSIBLE_ERROR_BYTES_MAX];
        let mut possible = PossibleError::default();
        assert_eq!(possible.push(Bytes::from(long.clone())), None);
        let first = possible.push(Bytes::from_static(b"{")).unwrap();
        assert_eq!(first.len(), POSSIBLE_ERROR_BYTES_MAX + 1);
        assert_eq!(possible.push(Bytes::from_static(b"}")), Some(Bytes::from_static(b"}")));
        assert_eq!(possible.finish(Protocol::Messages.into(), "s", "r"), Bytes::new());
    }

    fn read(coded: MessageCoding, bytes: &[u8]) -> Option<Bytes> {
        let head = ResponseHeader::build(500, None).unwrap();
        let mut answer = WithheldError::new(head, coded, ErrorJudgement::ByStatus);
        for piece in bytes.chunks(1000) {
            answer.push(piece);
        }
        answer.take_text()
    }

    #[test]
    fn an_error_is_read_up_to_its_limit_in_any_coding() {
        let whole = vec![b'a'; ERROR_BODY_BYTES_MAX];
        let longer = vec![b'a'; ERROR_BODY_BYTES_MAX + 1];
        assert_eq!(
            read(MessageCoding::No, &whole).map(|text| text.len()),
            Some(whole.len())
        );
        assert_eq!(read(MessageCoding::No, &longer), None);
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            let coded = || MessageCoding::By(coding);
            let whole_read = read(coded(), &packed(coding, &whole));
            assert_eq!(whole_read.map(|text| text.len()), Some(whole.len()), "{coding:?}");
            assert_eq!(read(coded(), &packed(coding, &longer)), None, "{coding:?}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_nothing() {
        let bytes = packed(Coding::Gzip, b"an error");
        let gzip = || MessageCoding::By(Coding::Gzip);
        assert_eq!(read(gzip(), &bytes), Some(Bytes::from("an error")));
        assert_eq!(read(gzip(), &bytes[..bytes.len() - 1]), None);
        assert_eq!(read(gzip(), b"an error"), None);
        assert_eq!(read(MessageCoding::Otherwise("compress".to_owned()), b"an error"), None);
    }
}

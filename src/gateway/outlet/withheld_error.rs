//! An error answer that is withheld in memory until its end.

use bytes::{Bytes, BytesMut};
use pingora::http::ResponseHeader;

use crate::gateway::coding::{
    Coding, MessageCoding,
    decoding::{Decoding, Following},
};

/// The largest error answer that is kept, both as received and decoded. A longer one is replaced by weir's own error.
const ERROR_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An error answer being withheld.
#[derive(Debug)]
pub(crate) struct WithheldError {
    /// The provider's head.
    pub head: ResponseHeader,
    coded: MessageCoding,
    body: BytesMut,
    too_large: bool,
    /// What decides the meaning of the answer.
    pub judgement: ErrorJudgement,
}

/// What decides the meaning of an error answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorJudgement {
    /// Its status alone has decided.
    ByStatus,
    /// Its text decides.
    Not,
    /// Its text decides; the provider sent it with the status of a success.
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
    /// Starts an answer whose head has arrived.
    pub(crate) fn new(head: ResponseHeader, coded: MessageCoding, judgement: ErrorJudgement) -> Self {
        Self {
            head,
            coded,
            body: BytesMut::new(),
            too_large: false,
            judgement,
        }
    }

    /// Adds a piece of the body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.body.len() + piece.len() > ERROR_BODY_BYTES_MAX {
            self.too_large = true;
        } else {
            self.body.extend_from_slice(piece);
        }
    }

    /// Takes the decoded text; `None` if it cannot be decoded or exceeds the limit.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::coding::tests::packed;

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

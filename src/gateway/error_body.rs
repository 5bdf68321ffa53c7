//! A provider's error answer: held until its end, decoded, masked, and put into the protocol's shape where that is wanted.

use bytes::{Bytes, BytesMut};

use crate::{
    clock,
    domain::{
        outcome::Outcome,
        protocol::provider_error::{redact, reshape_error},
        refusal::Refusal,
        retry::{REST_AFTER_REFUSAL, retry_delay},
        rules::{ErrorMeaning, ErrorShape},
    },
    gateway::{
        coding::{Coded, Coding, Decoder},
        exchange::Forward,
        relay,
    },
    metrics::Metrics,
};

/// The largest error answer that is held for masking, as it comes and decoded; a longer one is replaced.
const ERROR_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An error answer, gathered.
#[derive(Debug)]
pub struct ErrorBody {
    coded: Coded,
    held: BytesMut,
    too_large: bool,
}

impl ErrorBody {
    /// Nothing has come yet.
    pub fn new(coded: Coded) -> Self {
        Self {
            coded,
            held: BytesMut::new(),
            too_large: false,
        }
    }

    /// A piece of it has come.
    pub fn push(&mut self, piece: &[u8]) {
        if self.held.len() + piece.len() > ERROR_BODY_BYTES_MAX {
            self.too_large = true;
        } else {
            self.held.extend_from_slice(piece);
        }
    }

    /// What the client gets: masked, and in the protocol's shape if the provider's file asks for that. Replaced when it is
    /// too large or cannot be decoded.
    pub fn finish(self, metrics: &Metrics, forward: &mut Forward) -> Bytes {
        let status = forward.ticket.meter.status();
        let protocol = forward.operation.protocol();
        let text = self.text();
        let readable = text.is_some();
        let text = text.unwrap_or_default();
        let credential = forward.attempts.credential();
        let masked = redact(&text, credential.credential.secret.expose()).map_or(text, Bytes::from);
        if means_refused_credential(forward, status, &masked) {
            relay::credential_refused(metrics, forward, status);
            credential.rest(REST_AFTER_REFUSAL, clock::instant());
            forward.ticket.fail(Outcome::CredentialRefused);
            let refusal = Refusal::ProviderCredentialRefused;
            return refusal.reply(protocol, forward.ticket.request_id()).body.into();
        }
        if status == 429
            && let Some(pause) = retry_delay(&masked)
        {
            credential.rest(pause, clock::instant());
        }
        if !readable || forward.provider().errors == ErrorShape::Reshape {
            return reshape_error(protocol, status, &masked, forward.ticket.request_id()).into();
        }
        masked
    }

    /// The decoded text, if it is one within the limit.
    fn text(self) -> Option<Bytes> {
        match self.coded {
            _ if self.too_large => None,
            Coded::No => Some(self.held.freeze()),
            Coded::By(coding) => decoded(coding, &self.held),
            Coded::Otherwise(_) => None,
        }
    }
}

/// Whether the provider's file says that this error is about the credential. The status has gone to the client by then;
/// the text, which tells of the operator's account, has not.
fn means_refused_credential(forward: &Forward, status: u16, body: &[u8]) -> bool {
    forward.provider().error_rules.iter().any(|rule| {
        rule.status == status
            && rule.means == ErrorMeaning::CredentialRefused
            && memchr::memmem::find(body, rule.contains.as_bytes()).is_some()
    })
}

fn decoded(coding: Coding, bytes: &[u8]) -> Option<Bytes> {
    const STEP_BYTES: usize = 16 * 1024;
    let mut decoder = Decoder::new(coding).ok()?;
    let (mut rest, mut text) = (bytes, BytesMut::new());
    while !decoder.has_ended() {
        let start = text.len();
        text.resize(start + STEP_BYTES, 0);
        let step = decoder.step(rest, text.get_mut(start..)?).ok()?;
        text.truncate(start + step.written);
        rest = rest.get(step.read..)?;
        let stuck = step.read == 0 && step.written == 0 && !decoder.has_ended();
        if stuck || text.len() > ERROR_BODY_BYTES_MAX {
            return None;
        }
    }
    rest.is_empty().then(|| text.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::coding::tests::packed;

    fn text(coded: Coded, bytes: &[u8]) -> Option<Bytes> {
        let mut body = ErrorBody::new(coded);
        for piece in bytes.chunks(1000) {
            body.push(piece);
        }
        body.text()
    }

    #[test]
    fn an_error_is_read_up_to_its_limit_in_any_coding() {
        let whole = vec![b'a'; ERROR_BODY_BYTES_MAX];
        let longer = vec![b'a'; ERROR_BODY_BYTES_MAX + 1];
        assert_eq!(text(Coded::No, &whole).map(|text| text.len()), Some(whole.len()));
        assert_eq!(text(Coded::No, &longer), None);
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            let coded = || Coded::By(coding);
            let read = text(coded(), &packed(coding, &whole));
            assert_eq!(read.map(|text| text.len()), Some(whole.len()), "{coding:?}");
            assert_eq!(text(coded(), &packed(coding, &longer)), None, "{coding:?}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_nothing() {
        let bytes = packed(Coding::Gzip, b"an error");
        let gzip = || Coded::By(Coding::Gzip);
        assert_eq!(text(gzip(), &bytes), Some(Bytes::from("an error")));
        assert_eq!(text(gzip(), &bytes[..bytes.len() - 1]), None);
        assert_eq!(text(gzip(), b"an error"), None);
        assert_eq!(text(Coded::Otherwise("compress".to_owned()), b"an error"), None);
    }
}

//! A provider's error answer. It is withheld, head and body, until its end. Then it is decoded, the provider's file
//! decides what it means, and the client gets it masked and in the form it expects. The client gets nothing of it if
//! another attempt follows or the credential was refused.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Version, header};
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    clock,
    domain::{
        outcome::Outcome,
        protocol::{
            framing_of,
            provider_error::{redact, reshape_error},
        },
        retry::{retry_after, retry_delay},
        rules::ErrorShape,
    },
    gateway::{
        answer::hidden_head as unseen,
        answer::relay,
        attempt::verdict,
        coding::{self, Coded, Coding, Decoder},
        exchange::Forward,
        reply,
    },
    metrics::Metrics,
};

/// The largest error answer that is kept, as received and decoded. A longer one is replaced by an error of weir's own.
const ERROR_BODY_BYTES_MAX: usize = 1024 * 1024;

/// An error answer being withheld.
#[derive(Debug)]
pub struct ErrorAnswer {
    head: ResponseHeader,
    coded: Coded,
    held: BytesMut,
    too_large: bool,
    /// The status alone has decided what the answer means; its text does not matter.
    is_judged: bool,
}

/// A complete error answer, ready for the client.
#[derive(Debug)]
pub struct WholeError {
    head: ResponseHeader,
    body: Bytes,
}

/// Withholds an error answer whose head has arrived, and gives Pingora a head that the client never sees. `is_judged`
/// says that the status has decided already. An error return ends the attempt.
pub fn withhold(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader, is_judged: bool) -> Result<()> {
    let withheld = std::mem::replace(head, unseen::head()?);
    let content_type = withheld.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let framing = framing_of(forward.operation, content_type);
    let coded = coding::of(&withheld.headers);
    let (status, protocol) = (withheld.status.as_u16(), forward.operation.protocol());
    forward.ticket.meter.head_seen(status, protocol, framing, &coded);
    let is_empty = has_no_body(&withheld);
    forward.error_answer = Some(ErrorAnswer {
        head: withheld,
        coded,
        held: BytesMut::new(),
        too_large: false,
        is_judged,
    });
    match is_empty {
        // There is no body.
        true => pass(metrics, forward, &mut None, true),
        false => Ok(()),
    }
}

fn has_no_body(head: &ResponseHeader) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    let is_chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
    !is_chunked && length.is_some_and(|length| length.as_bytes() == b"0")
}

/// Takes a piece of a withheld answer, or its end. Nothing goes to the client. An error return ends the attempt.
pub fn pass(metrics: &Metrics, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let taken = piece.take();
    if let (Some(error), Some(bytes)) = (&mut forward.error_answer, taken) {
        error.push(&bytes);
    }
    if end && let Some(error) = forward.error_answer.take() {
        forward.watch = None;
        forward.whole_error = Some(error.finish(metrics, forward)?);
        forward.ticket.meter.body_ended();
    }
    Ok(())
}

/// Sends the client a complete error answer. Pingora only has to end the request after that, so both connections stay
/// usable; an error return would close them.
pub async fn release(session: &mut Session, forward: &mut Forward) {
    let Some(WholeError { head, body }) = forward.whole_error.take() else {
        return;
    };
    // Charge first: the client may send its next request at once.
    forward.ticket.charge_now();
    if reply::send(session, head, body).await.is_err() {
        forward.ticket.fail(Outcome::ClientGone);
    }
}

impl ErrorAnswer {
    /// Adds a piece of the body.
    fn push(&mut self, piece: &[u8]) {
        if self.held.len() + piece.len() > ERROR_BODY_BYTES_MAX {
            self.too_large = true;
        } else {
            self.held.extend_from_slice(piece);
        }
    }

    /// Decides what the answer means and prepares it for the client. An error return ends the attempt.
    fn finish(self, metrics: &Metrics, forward: &mut Forward) -> Result<WholeError> {
        let Self {
            mut head,
            coded,
            held,
            too_large,
            is_judged,
        } = self;
        let text = if too_large { None } else { plain(&coded, held) };
        let status = head.status.as_u16();
        let wait = text.as_deref().filter(|_| status == 429).and_then(retry_delay);
        if !is_judged {
            let refused = forward.provider().refuses_credential(status, text.as_deref());
            let wait = wait.or_else(|| asked_pause(&head));
            verdict::pass(metrics, forward, status, refused, wait)?;
        } else if let Some(wait) = wait {
            forward.attempts.credential().rest(wait, clock::instant());
        }
        let form = forward.provider().error_form(forward.operation.protocol());
        let credential = forward.attempts.credential().credential.secret.expose();
        let masked = text.map(|text| redact(&text, credential).map_or(text, Bytes::from));
        let fits = |body: &Bytes| forward.provider().errors == ErrorShape::Native && form.fits(body);
        let is_native = masked.as_ref().is_some_and(fits);
        let body = match masked {
            Some(body) if is_native => body,
            other => reshape_error(form, status, &other.unwrap_or_default(), forward.ticket.request_id()).into(),
        };
        relay::fit(forward, &mut head)?;
        describe(&mut head, body.len(), is_native)?;
        Ok(WholeError { head, body })
    }
}

/// The pause that an error answer's head asks for.
pub(super) fn asked_pause(head: &ResponseHeader) -> Option<Duration> {
    let header = |name: &str| head.headers.get(name)?.to_str().ok();
    retry_after(header, clock::unix_millis())
}

/// Adapts the head to the body, which is always JSON now. The provider's content type stays if it was JSON already.
fn describe(head: &mut ResponseHeader, length: usize, is_native: bool) -> Result<()> {
    head.set_version(Version::HTTP_11);
    head.remove_header(&header::CONTENT_ENCODING);
    head.remove_header(&header::TRANSFER_ENCODING);
    head.insert_header(header::CONTENT_LENGTH, length)?;
    let named = head.headers.get(header::CONTENT_TYPE);
    let is_named = named.is_some_and(|value| is_json(value.as_bytes()));
    if !is_native || !is_named {
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
    }
    Ok(())
}

fn is_json(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// The decoded text, if it can be decoded and is within the limit.
fn plain(coded: &Coded, held: BytesMut) -> Option<Bytes> {
    match coded {
        Coded::No => Some(held.freeze()),
        Coded::By(coding) => decoded(*coding, &held),
        Coded::Otherwise(_) => None,
    }
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

    fn read(coded: Coded, bytes: &[u8]) -> Option<Bytes> {
        let mut answer = ErrorAnswer {
            head: ResponseHeader::build(500, None).unwrap(),
            coded,
            held: BytesMut::new(),
            too_large: false,
            is_judged: true,
        };
        for piece in bytes.chunks(1000) {
            answer.push(piece);
        }
        if answer.too_large {
            None
        } else {
            plain(&answer.coded, answer.held)
        }
    }

    #[test]
    fn an_error_is_read_up_to_its_limit_in_any_coding() {
        let whole = vec![b'a'; ERROR_BODY_BYTES_MAX];
        let longer = vec![b'a'; ERROR_BODY_BYTES_MAX + 1];
        assert_eq!(read(Coded::No, &whole).map(|text| text.len()), Some(whole.len()));
        assert_eq!(read(Coded::No, &longer), None);
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            let coded = || Coded::By(coding);
            let whole_read = read(coded(), &packed(coding, &whole));
            assert_eq!(whole_read.map(|text| text.len()), Some(whole.len()), "{coding:?}");
            assert_eq!(read(coded(), &packed(coding, &longer)), None, "{coding:?}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_nothing() {
        let bytes = packed(Coding::Gzip, b"an error");
        let gzip = || Coded::By(Coding::Gzip);
        assert_eq!(read(gzip(), &bytes), Some(Bytes::from("an error")));
        assert_eq!(read(gzip(), &bytes[..bytes.len() - 1]), None);
        assert_eq!(read(gzip(), b"an error"), None);
        assert_eq!(read(Coded::Otherwise("compress".to_owned()), b"an error"), None);
    }
}

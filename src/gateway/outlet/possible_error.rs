//! A JSON answer with the status of a success that may contain an error.

use bytes::{Bytes, BytesMut};

use crate::domain::{
    rules::ResponseRewriter,
    wire::protocol::{
        ErrorForm,
        provider_error::{failure_in_success, redact, reshape_error},
    },
};

/// The size beyond which an answer is not an error; errors are short.
const POSSIBLE_ERROR_BYTES_MAX: usize = 64 * 1024;

/// A buffered answer that may be an error. Some providers answer 200 with an error in their own shape: if the provider's file has
/// errors reshaped, a JSON answer is buffered until it is known to be a success or an error.
#[derive(Debug, Default)]
pub(crate) struct PossibleError {
    /// Edits the answer first, if the provider's file has rules for that.
    pub rewriter: Option<ResponseRewriter>,
    held: BytesMut,
    /// The answer is too long for an error, so further pieces pass.
    cleared: bool,
}

impl PossibleError {
    /// Starts an answer.
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

    /// Ends the answer. Returns the buffered bytes: unchanged, or, if they are an error, masked and in the given form.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::protocol::Protocol;

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
}

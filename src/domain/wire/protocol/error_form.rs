//! The forms in which clients get errors, and a check whether an error body has a certain form.

use serde::{Deserialize, de::IgnoredAny};

use crate::domain::wire::protocol::Protocol;

/// The form in which a client gets errors: the form of its protocol, or a provider's own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// The form that this protocol defines.
    Of(Protocol),
    /// An object with `code`, `message` and `type` at the root, without a wrapper. This is the form of a provider of the Messages
    /// protocol (docs/interface.md, Errors: provider 3).
    NativeRoot,
}

impl From<Protocol> for ErrorForm {
    fn from(protocol: Protocol) -> Self {
        Self::Of(protocol)
    }
}

impl ErrorForm {
    /// Returns the protocol to which errors of this form belong.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Of(protocol) => protocol,
            Self::NativeRoot => Protocol::Messages,
        }
    }

    /// Whether an error body already has this form, so that it can pass unchanged. A Gemini-style error can also be the only
    /// element of an array, if the answer would have been an array.
    pub fn is_form_of(self, body: &[u8]) -> bool {
        match self {
            Self::Of(Protocol::Messages) => {
                serde_json::from_slice::<MessagesError>(body).is_ok_and(|error| error.kind == "error")
            }
            Self::Of(Protocol::Responses) => can_parse_as::<ResponsesError>(body),
            Self::Of(Protocol::Gemini) => can_parse_as::<GeminiError>(body) || can_parse_as::<[GeminiError; 1]>(body),
            Self::NativeRoot => serde_json::from_slice::<RootError>(body).is_ok_and(|error| error.error.is_none()),
        }
    }
}

fn can_parse_as<'a, T: Deserialize<'a>>(body: &'a [u8]) -> bool {
    serde_json::from_slice::<T>(body).is_ok()
}

/// Any string.
#[derive(Deserialize)]
struct AnyText(#[expect(dead_code, reason = "only its presence and type matter")] String);

#[derive(Deserialize)]
struct MessagesError {
    #[serde(rename = "type")]
    kind: String,
    #[expect(dead_code, reason = "only its presence and type matter")]
    error: MessagesDetail,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their presence and types matter")]
struct MessagesDetail {
    #[serde(rename = "type")]
    kind: AnyText,
    message: AnyText,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its presence and type matter")]
struct ResponsesError {
    error: ResponsesDetail,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their presence and types matter")]
struct ResponsesDetail {
    message: AnyText,
    #[serde(rename = "type")]
    kind: AnyText,
    code: TextOrNull,
}

/// A string or `null`. Unlike with an `Option`, the member must not be missing.
#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its type matters")]
enum TextOrNull {
    Text(String),
    Null(()),
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its presence and type matter")]
struct GeminiError {
    error: GeminiDetail,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their presence and types matter")]
struct GeminiDetail {
    code: i64,
    message: AnyText,
    status: AnyText,
}

#[derive(Deserialize)]
struct RootError {
    #[expect(dead_code, reason = "only its presence and type matter")]
    code: TextOrNumber,
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "only its presence and type matter")]
    kind: AnyText,
    #[expect(dead_code, reason = "only its presence and type matter")]
    message: AnyText,
    /// The member that contains the error in other forms. It must be missing.
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its type matters")]
enum TextOrNumber {
    Text(String),
    Number(i64),
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#" {"type":"error","error":{"type":"any","message":"m","more":[1]},"request_id":"r"}
"#;
    const RESPONSES: &str = r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#;
    const GEMINI: &str = r#"{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED","details":[{}]}}"#;
    const ROOT: &str = r#"{"code":"401","message":"m","param":"p","type":"invalid_key"}"#;

    const FORMS: [(ErrorForm, &str); 4] = [
        (ErrorForm::Of(Protocol::Messages), MESSAGES),
        (ErrorForm::Of(Protocol::Responses), RESPONSES),
        (ErrorForm::Of(Protocol::Gemini), GEMINI),
        (ErrorForm::NativeRoot, ROOT),
    ];

    #[test]
    fn each_form_is_known_and_no_other_is_taken_for_it() {
        for (form, own) in FORMS {
            for (other, body) in FORMS {
                let is_own = form == other;
                assert_eq!(form.is_form_of(body.as_bytes()), is_own, "{form:?}: {body}");
            }
            assert!(form.is_form_of(own.as_bytes()));
        }
    }

    #[test]
    fn what_lacks_a_part_of_its_form_has_none() {
        for (form, body) in [
            (
                ErrorForm::Of(Protocol::Messages),
                r#"{"error":{"type":"t","message":"m"}}"#,
            ),
            (
                ErrorForm::Of(Protocol::Messages),
                r#"{"type":"other","error":{"type":"t","message":"m"}}"#,
            ),
            (
                ErrorForm::Of(Protocol::Messages),
                r#"{"type":"error","error":{"type":"t"}}"#,
            ),
            (ErrorForm::Of(Protocol::Messages), r#"{"type":"error","error":"m"}"#),
            (
                ErrorForm::Of(Protocol::Responses),
                r#"{"error":{"message":"m","type":"t"}}"#,
            ),
            (
                ErrorForm::Of(Protocol::Responses),
                r#"{"error":{"message":"m","type":"t","code":7}}"#,
            ),
            (
                ErrorForm::Of(Protocol::Gemini),
                r#"{"error":{"code":"denied","message":"m","status":"s"}}"#,
            ),
            (
                ErrorForm::Of(Protocol::Gemini),
                r#"{"error":{"code":403,"message":"m"}}"#,
            ),
            (ErrorForm::NativeRoot, r#"{"code":"1","message":"m"}"#),
            (
                ErrorForm::NativeRoot,
                r#"{"code":"1","message":"m","type":"t","error":{}}"#,
            ),
        ] {
            assert!(!form.is_form_of(body.as_bytes()), "{form:?}: {body}");
        }
        for (form, _) in FORMS {
            for body in ["", "null", "[]", "{}", "<html>502</html>", "data: {}"] {
                assert!(!form.is_form_of(body.as_bytes()), "{form:?}: {body}");
            }
        }
    }

    #[test]
    fn an_array_of_one_is_gemini_style_too() {
        let gemini = ErrorForm::Of(Protocol::Gemini);
        assert!(gemini.is_form_of(format!("[{GEMINI}\n]").as_bytes()));
        assert!(!gemini.is_form_of(format!("[{GEMINI},{GEMINI}]").as_bytes()));
    }
}

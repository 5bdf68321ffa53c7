//! Error rules: the meaning of a provider's errors whose status does not show it.

use crate::domain::{
    rules::{pattern::matches, raw::ErrorMeaning},
    wire::protocol::provider_error,
};

/// Recognises an error of the provider by its status and content. All given conditions have to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The error's status.
    pub status: u16,
    /// A machine-readable word of the error: its code, type or status, or a reason in its details.
    pub code: Option<String>,
    /// A pattern for its message; `*` matches any text.
    pub message: Option<String>,
    /// A text that its body contains.
    pub contains: Option<String>,
    /// Whether it refuses the credential or the request.
    pub means: ErrorMeaning,
}

/// The `[[error]]` entries of one file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRules(pub Vec<ErrorRule>);

impl ErrorRules {
    /// Whether the body of an error of this status has to be read to know the error's meaning.
    pub fn needs_body(&self, status: u16) -> bool {
        self.0.iter().any(|rule| rule.status == status)
    }

    /// The meaning of an error, by the first rule that matches. `body` is the decoded body as the provider sent it; `None` if
    /// it cannot be read.
    pub fn meaning(&self, status: u16, body: Option<&[u8]>) -> Option<ErrorMeaning> {
        if !self.needs_body(status) {
            return None;
        }
        let body = body?;
        let said = provider_error::read(body).unwrap_or_default();
        let fits = |rule: &&ErrorRule| {
            let code = rule.code.as_ref();
            let (message, contains) = (rule.message.as_deref(), rule.contains.as_deref());
            rule.status == status
                && code.is_none_or(|code| said.words.contains(code))
                && message.is_none_or(|pattern| said.message.as_ref().is_some_and(|said| matches(pattern, said)))
                && contains.is_none_or(|text| memchr::memmem::find(body, text.as_bytes()).is_some())
        };
        self.0.iter().find(fits).map(|rule| rule.means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ErrorRule = ErrorRule {
        status: 403,
        code: None,
        message: None,
        contains: None,
        means: ErrorMeaning::RequestRefused,
    };

    fn rules(rules: &[ErrorRule]) -> ErrorRules {
        ErrorRules(rules.to_vec())
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_code_is_a_whole_word_wherever_an_error_has_its_words() {
        let one = rules(&[ErrorRule {
            code: text("gone"),
            ..NONE
        }]);
        for body in [
            r#"{"error":{"code":"gone"}}"#,
            r#"{"error":{"type":"gone"}}"#,
            r#"{"error":{"status":"gone"}}"#,
            r#"{"code":"gone"}"#,
            r#"{"type":"gone","message":"m"}"#,
            r#"{"code":"gone","error":"m"}"#,
            r#"[{"error":{"details":[{"@type":"t"},{"reason":"gone"}]}}]"#,
            r#"{"error":{"details":{"error_code":"gone"}}}"#,
        ] {
            assert_eq!(one.meaning(403, Some(body.as_bytes())), Some(NONE.means), "{body}");
            assert_eq!(one.meaning(400, Some(body.as_bytes())), None, "{body}");
        }
        // What a client may have brought in is no word of the error.
        for body in [
            r#"{"error":{"code":"gone_by","message":"gone"}}"#,
            r#"{"error":{"code":"other","details":[{"field":"gone"}]}}"#,
            "gone",
            "",
        ] {
            assert_eq!(one.meaning(403, Some(body.as_bytes())), None, "{body}");
        }
        let number = rules(&[ErrorRule {
            code: text("1113"),
            ..NONE
        }]);
        for body in [r#"{"error":{"code":1113}}"#, r#"{"error":{"code":"1113"}}"#] {
            assert_eq!(number.meaning(403, Some(body.as_bytes())), Some(NONE.means), "{body}");
        }
    }

    #[test]
    fn a_message_fits_from_its_beginning_to_its_end() {
        let one = rules(&[ErrorRule {
            message: text("No access to the File * here."),
            ..NONE
        }]);
        let meaning = |message: &str| {
            let body = format!(r#"{{"error":{{"code":403,"message":"{message}"}}}}"#);
            one.meaning(403, Some(body.as_bytes()))
        };
        assert_eq!(meaning("No access to the File abc here."), Some(NONE.means));
        assert_eq!(meaning("Unknown name: No access to the File abc here."), None);
        assert_eq!(meaning("No access to the File abc here. Or so"), None);
    }

    #[test]
    fn the_first_rule_of_which_all_holds_says_it() {
        let several = rules(&[
            ErrorRule {
                code: text("a"),
                contains: text("both"),
                ..NONE
            },
            ErrorRule {
                contains: text("<html>"),
                means: ErrorMeaning::CredentialRefused,
                ..NONE
            },
        ]);
        for (body, means) in [
            (r#"{"code":"a","message":"both"}"#, Some(ErrorMeaning::RequestRefused)),
            (
                r#"{"code":"a","message":"<html>"}"#,
                Some(ErrorMeaning::CredentialRefused),
            ),
            (r#"{"code":"b","message":"both"}"#, None),
            ("<html>blocked</html>", Some(ErrorMeaning::CredentialRefused)),
        ] {
            assert_eq!(several.meaning(403, Some(body.as_bytes())), means, "{body}");
        }
        assert_eq!(several.meaning(403, None), None);
        assert!(several.needs_body(403) && !several.needs_body(401));
    }
}

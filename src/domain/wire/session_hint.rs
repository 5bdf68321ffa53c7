//! Finds out whether a request continues something: state or a cache that lies with one credential of a provider.

use serde::{Deserialize, Serialize};

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::domain::wire::{
    json_scan::{Scan, unescaped},
    protocol::Protocol,
    provider_state::StateKey,
};

/// Headers by which agents name their session, the surest first.
static SESSION_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("x-claude-code-session-id"),
    HeaderName::from_static("session-id"),
    HeaderName::from_static("thread-id"),
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-session-id"),
];

/// Where the state of a request lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionHint {
    number: u64,
    /// State that the provider keeps.
    state: Option<StateKey>,
    remembered: Option<ServedBy>,
}

/// Who served a session: provider and credential, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServedBy {
    pub provider: String,
    pub credential: String,
}

impl SessionHint {
    /// The hint of state that the provider keeps, with who has it, if that is remembered.
    pub(crate) fn of_state(state: StateKey, served_by: Option<ServedBy>) -> Self {
        Self {
            number: state.number(),
            state: Some(state),
            remembered: served_by,
        }
    }

    /// A number that is the same for all requests of a session.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether no other credential can serve the request: the provider keeps its state.
    pub(crate) fn is_binding(&self) -> bool {
        self.state.is_some()
    }

    /// Under what the place of the state was remembered.
    pub(crate) fn state(&self) -> Option<StateKey> {
        self.state
    }

    /// Who has the state, if that was remembered.
    pub(crate) fn served_by(&self) -> Option<&ServedBy> {
        self.remembered.as_ref()
    }
}

/// Whether the answer may be continued by its identifier: the provider keeps it.
pub(crate) fn is_kept(protocol: Protocol, scan: &Scan) -> bool {
    match protocol {
        // Kept unless it is told not to (`store` defaults to true).
        Protocol::Responses => scan.store != Some(false),
        Protocol::Messages => scan.may_be_continued,
        Protocol::Gemini => false,
    }
}

/// The session that a request is part of, by a name it gives or by what it holds. `caller` is the id of its key: nobody reaches
/// another's sessions.
pub(crate) fn session(caller: &str, headers: &HeaderMap, body: &[u8], scan: &Scan) -> Option<SessionHint> {
    let named = named(headers).map(Cow::Borrowed).or_else(|| cache_key(body, scan));
    let number = match named {
        Some(name) => number(caller, "session", &name),
        None if scan.is_account_bound => number(caller, "caller", ""),
        None => return None,
    };
    Some(SessionHint {
        number,
        state: None,
        remembered: None,
    })
}

/// The session that agents name in a header of their own.
pub(crate) fn named(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &HeaderName| headers.get(name)?.to_str().ok().filter(|text| !text.is_empty());
    SESSION_HEADERS.iter().find_map(header)
}

fn cache_key<'b>(body: &'b [u8], scan: &Scan) -> Option<Cow<'b, str>> {
    let token = body.get(scan.prompt_cache_key.clone()?)?;
    unescaped(token).filter(|text| !text.is_empty())
}

fn number(caller: &str, kind: &str, id: &str) -> u64 {
    // Lengths keep one text from running into the next.
    let digest = Sha256::new()
        .chain_update(caller.len().to_be_bytes())
        .chain_update(caller)
        .chain_update(kind.len().to_be_bytes())
        .chain_update(kind)
        .chain_update(id)
        .finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::{
        json_scan::{ScanLimits, scan},
        provider_state::StateId,
    };

    fn scanned(body: &str) -> Scan {
        let limits = ScanLimits {
            depth_max: 64,
            references_max: 64,
        };
        scan(body.as_bytes(), Protocol::Responses, &limits).unwrap()
    }

    fn hint(caller: &str, headers: &[(&'static str, &str)], body: &str) -> Option<SessionHint> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        session(caller, &map, body.as_bytes(), &scanned(body))
    }

    #[test]
    fn an_answer_is_kept_unless_the_request_says_not_to() {
        for (protocol, body, kept) in [
            (Protocol::Responses, "{}", true),
            (Protocol::Responses, r#"{"store":true}"#, true),
            (Protocol::Responses, r#"{"store":null}"#, true),
            (Protocol::Responses, r#"{"store":false}"#, false),
            (Protocol::Messages, "{}", false),
            (Protocol::Messages, r#"{"thread":null}"#, false),
            (Protocol::Messages, r#"{"thread":{"type":"create"}}"#, true),
            (
                Protocol::Messages,
                r#"{"diagnostics":{"previous_message_id":null}}"#,
                true,
            ),
            (Protocol::Gemini, "{}", false),
        ] {
            assert_eq!(is_kept(protocol, &scanned(body)), kept, "{body}");
        }
    }

    #[test]
    fn state_at_the_provider_binds() {
        let state = StateKey::new("a", StateId::new("resp_1"));
        let hint = SessionHint::of_state(state, None);
        assert!(hint.is_binding());
        assert_eq!((hint.state(), hint.served_by()), (Some(state), None));
        let other = SessionHint::of_state(StateKey::new("b", StateId::new("resp_1")), None);
        assert_ne!(hint.number(), other.number());
    }

    #[test]
    fn sessions_and_caches_prefer_without_binding() {
        let by_header = hint("k", &[("session-id", "s1")], "{}").unwrap();
        for body in [r#"{"prompt_cache_key":"s1"}"#, r#"{"prompt_c\u0061che_key":"\u00731"}"#] {
            assert_eq!(Some(&by_header), hint("k", &[], body).as_ref(), "{body}");
        }
        assert!(!by_header.is_binding());
        let cached = hint("k", &[], r#"{"system":[{"cache_control":{}}]}"#).unwrap();
        assert_ne!(cached.number(), by_header.number());
        for key in [
            "encrypted_content",
            "signature",
            "thoughtSignature",
            "cache_c\\u006fntrol",
        ] {
            let bound = hint("k", &[], &format!(r#"{{"input":[{{"a":{{"{key}":null}}}}]}}"#));
            assert_eq!(bound.as_ref(), Some(&cached), "{key}");
        }
        assert_eq!(hint("k", &[], r#"{"input":"cache_control"}"#), None);
        assert_eq!(hint("k", &[("session-id", "")], "{}"), None);
        assert_eq!(hint("k", &[], r#"{"prompt_cache_key":""}"#), None);
        assert_ne!(
            hint("other", &[("session-id", "s1")], "{}").unwrap().number(),
            by_header.number()
        );
    }
}

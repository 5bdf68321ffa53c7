//! Derives a session hint from a request. A session hint identifies the session that the request continues, so that weir sends
//! the request to the provider and credential that have the session's state or cache.

use serde::{Deserialize, Serialize};

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::domain::wire::{
    json_scan::{Scan, unescaped},
    protocol::Protocol,
    provider_state::StateKey,
};

/// The headers in which agents send the name of their session, the most reliable first.
static SESSION_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("x-claude-code-session-id"),
    HeaderName::from_static("session-id"),
    HeaderName::from_static("thread-id"),
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-session-id"),
];

/// The hint that a request continues a session. The session's state or cache exists at only one provider, and only for one
/// credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionHint {
    number: u64,
    /// The key of the state that the request continues; `None` if the session has only a cache.
    state: Option<StateKey>,
    served_by: Option<ServedBy>,
}

/// The names of the provider and credential that served a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServedBy {
    pub provider: String,
    pub credential: String,
}

impl SessionHint {
    /// Creates a hint for state that a provider stores. `served_by` is the provider and credential that have the state; `None` if
    /// that is not recorded.
    pub(crate) fn for_state(state: StateKey, served_by: Option<ServedBy>) -> Self {
        Self {
            number: state.number(),
            state: Some(state),
            served_by,
        }
    }

    /// Returns a number that is the same for all requests of a session.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether only one credential can serve the request, because the provider stores the session's state under that credential.
    pub(crate) fn is_binding(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the key under which weir recorded the provider and credential that have the session's state; `None` if the session
    /// has only a cache.
    pub(crate) fn state(&self) -> Option<StateKey> {
        self.state
    }

    /// Returns the provider and credential that have the session's state; `None` if they are not recorded.
    pub(crate) fn served_by(&self) -> Option<&ServedBy> {
        self.served_by.as_ref()
    }
}

/// Whether the provider stores the answer, so that a later request can continue it by its identifier.
pub(crate) fn is_answer_kept(protocol: Protocol, scan: &Scan) -> bool {
    match protocol {
        // The default of `store` is true.
        Protocol::Responses => scan.store != Some(false),
        Protocol::Messages => scan.may_be_continued,
        Protocol::Gemini => false,
    }
}

/// Returns the hint for a request that names its session, or that contains content bound to one account at the provider; `None`
/// for any other request. `caller` is the id of the client's API key. The hint depends on this id, so that a client cannot use
/// the sessions of another client.
pub(crate) fn session_hint(caller: &str, headers: &HeaderMap, body: &[u8], scan: &Scan) -> Option<SessionHint> {
    let named = session_name(headers)
        .map(Cow::Borrowed)
        .or_else(|| cache_key(body, scan));
    let number = match named {
        Some(name) => session_number(caller, "session", &name),
        None if scan.is_account_bound => session_number(caller, "caller", ""),
        None => return None,
    };
    Some(SessionHint {
        number,
        state: None,
        served_by: None,
    })
}

/// Returns the session's name from the most reliable header in which an agent has sent it; `None` if there is no such header.
pub(crate) fn session_name(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &HeaderName| headers.get(name)?.to_str().ok().filter(|text| !text.is_empty());
    SESSION_HEADERS.iter().find_map(header)
}

fn cache_key<'b>(body: &'b [u8], scan: &Scan) -> Option<Cow<'b, str>> {
    let token = body.get(scan.prompt_cache_key.clone()?)?;
    unescaped(token).filter(|text| !text.is_empty())
}

fn session_number(caller: &str, kind: &str, id: &str) -> u64 {
    // The lengths are hashed as well, so that the boundaries between the texts are unambiguous.
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
        session_hint(caller, &map, body.as_bytes(), &scanned(body))
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
            assert_eq!(is_answer_kept(protocol, &scanned(body)), kept, "{body}");
        }
    }

    #[test]
    fn state_at_the_provider_binds() {
        let state = StateKey::new("a", StateId::new("resp_1"));
        let hint = SessionHint::for_state(state, None);
        assert!(hint.is_binding());
        assert_eq!((hint.state(), hint.served_by()), (Some(state), None));
        let other = SessionHint::for_state(StateKey::new("b", StateId::new("resp_1")), None);
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

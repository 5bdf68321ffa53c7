//! What in a request says that it continues something: state or a cache that lies with one credential of a provider.

use std::sync::LazyLock;

use http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::domain::{
    json_pick::{Path, PathSet, Picker, Segment, Take},
    protocol::Protocol,
};

/// Headers by which agents name their session (protocols.md section 11), the surest first.
const SESSION_HEADERS: [&str; 5] = [
    "x-claude-code-session-id",
    "session-id",
    "thread-id",
    "x-session-affinity",
    "x-session-id",
];

/// Members that only the account which made them can read or has cached.
const ACCOUNT_BOUND: [&[u8]; 4] = [
    b"\"encrypted_content\"",
    b"\"signature\"",
    b"\"thoughtSignature\"",
    b"\"cache_control\"",
];

/// What a request has to do with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuity {
    /// What it continues.
    pub hint: Option<SessionHint>,
    /// Whether its answer may be continued by its identifier: the provider keeps it.
    pub is_kept: bool,
}

/// Where the state of a request lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHint {
    number: u64,
    /// What names state that the provider keeps: the identifier under which its place was remembered.
    state: Option<StateKey>,
    remembered: Option<ServedBy>,
}

/// Names a piece of state kept at a provider, without saying what it is: a digest over caller and identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateKey(pub [u8; 32]);

/// Who served a session: provider and credential, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedBy {
    /// The provider.
    pub provider: String,
    /// Its credential.
    pub credential: String,
}

impl SessionHint {
    /// A number that is the same for all requests of a session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether no other credential can serve the request: the provider keeps its state.
    pub fn is_binding(&self) -> bool {
        self.state.is_some()
    }

    /// Under what the place of the state was remembered.
    pub fn state(&self) -> Option<StateKey> {
        self.state
    }

    /// Adds what was remembered.
    pub fn remember(&mut self, served_by: ServedBy) {
        self.remembered = Some(served_by);
    }

    /// Who has the state, if that was remembered.
    pub fn served_by(&self) -> Option<&ServedBy> {
        self.remembered.as_ref()
    }
}

impl StateKey {
    /// The key of what `id` names for the caller with that key id.
    pub fn new(caller: &str, id: &str) -> Self {
        Self(digest(caller, "state", id))
    }

    /// As 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const PREVIOUS_RESPONSE: usize = 0;
const CONVERSATION: usize = 1;
const CONVERSATION_ID: usize = 2;
const PREVIOUS_MESSAGE: usize = 3;
const PROMPT_CACHE_KEY: usize = 4;
const CACHED_CONTENT: usize = 5;
const STORE: usize = 6;
const THREAD: usize = 7;

static PATHS: LazyLock<PathSet> = LazyLock::new(|| {
    PathSet::new(&[
        Path::new(&[Segment::Key("previous_response_id")], Take::Scalar),
        Path::new(&[Segment::Key("conversation")], Take::Scalar),
        Path::new(&[Segment::Key("conversation"), Segment::Key("id")], Take::Scalar),
        Path::new(
            &[Segment::Key("thread"), Segment::Key("previous_message_id")],
            Take::Scalar,
        ),
        Path::new(&[Segment::Key("prompt_cache_key")], Take::Scalar),
        Path::new(&[Segment::Key("cachedContent")], Take::Scalar),
        Path::new(&[Segment::Key("store")], Take::Scalar),
        Path::new(&[Segment::Key("thread")], Take::Presence),
    ])
});

/// Reads it from a request. `caller` is the id of its key: nobody reaches another's sessions.
pub fn continuity(protocol: Protocol, caller: &str, headers: &HeaderMap, body: &[u8]) -> Continuity {
    let mut picker = Picker::new(&PATHS);
    picker.push(body);
    Continuity {
        is_kept: match protocol {
            // Kept unless it is told not to (`store` defaults to true).
            Protocol::Responses => !picker.is(STORE, "false"),
            Protocol::Messages => picker.is_present(THREAD),
            Protocol::Gemini => false,
        },
        hint: hint(protocol, caller, headers, body, &picker),
    }
}

fn hint(protocol: Protocol, caller: &str, headers: &HeaderMap, body: &[u8], picker: &Picker) -> Option<SessionHint> {
    let kept: &[usize] = match protocol {
        Protocol::Responses => &[PREVIOUS_RESPONSE, CONVERSATION, CONVERSATION_ID],
        Protocol::Messages => &[PREVIOUS_MESSAGE],
        Protocol::Gemini => &[CACHED_CONTENT],
    };
    let text = |at: usize| picker.text(at).filter(|text| !text.is_empty());
    if let Some(id) = kept.iter().find_map(|at| text(*at)) {
        let state = StateKey::new(caller, &id);
        return Some(SessionHint {
            number: number(&state.0),
            state: Some(state),
            remembered: None,
        });
    }
    let header = |name: &&str| headers.get(*name)?.to_str().ok().filter(|text| !text.is_empty());
    let named = SESSION_HEADERS
        .iter()
        .find_map(header)
        .map(str::to_owned)
        .or_else(|| text(PROMPT_CACHE_KEY).map(std::borrow::Cow::into_owned));
    let is_bound = || {
        ACCOUNT_BOUND
            .iter()
            .any(|member| memchr::memmem::find(body, member).is_some())
    };
    let number = match named {
        Some(name) => number(&digest(caller, "session", &name)),
        None if is_bound() => number(&digest(caller, "caller", "")),
        None => return None,
    };
    Some(SessionHint {
        number,
        state: None,
        remembered: None,
    })
}

fn digest(caller: &str, kind: &str, id: &str) -> [u8; 32] {
    // Lengths keep one text from running into the next.
    Sha256::new()
        .chain_update(caller.len().to_be_bytes())
        .chain_update(caller)
        .chain_update(kind.len().to_be_bytes())
        .chain_update(kind)
        .chain_update(id)
        .finalize()
        .into()
}

fn number(digest: &[u8; 32]) -> u64 {
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(protocol: Protocol, headers: &[(&'static str, &str)], body: &str) -> Option<SessionHint> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        continuity(protocol, "key_1", &map, body.as_bytes()).hint
    }

    #[test]
    fn an_answer_is_kept_unless_the_request_says_not_to() {
        for (protocol, body, kept) in [
            (Protocol::Responses, "{}", true),
            (Protocol::Responses, r#"{"store":true}"#, true),
            (Protocol::Responses, r#"{"store":false}"#, false),
            (Protocol::Messages, "{}", false),
            (Protocol::Messages, r#"{"thread":{"type":"create"}}"#, true),
            (Protocol::Gemini, "{}", false),
        ] {
            let found = continuity(protocol, "k", &HeaderMap::new(), body.as_bytes());
            assert_eq!(found.is_kept, kept, "{body}");
        }
    }

    #[test]
    fn state_at_the_provider_binds() {
        for (protocol, body) in [
            (Protocol::Responses, r#"{"previous_response_id":"resp_1"}"#),
            (Protocol::Responses, r#"{"conversation":"resp_1"}"#),
            (Protocol::Responses, r#"{"conversation":{"id":"resp_1"}}"#),
            (
                Protocol::Messages,
                r#"{"thread":{"type":"continue","previous_message_id":"resp_1"}}"#,
            ),
            (Protocol::Gemini, r#"{"cachedContent":"resp_1"}"#),
        ] {
            let hint = hint(protocol, &[], body).unwrap();
            assert!(hint.is_binding(), "{body}");
            assert_eq!(hint.state(), Some(StateKey::new("key_1", "resp_1")));
        }
        assert!(
            hint(Protocol::Messages, &[], r#"{"previous_response_id":"resp_1"}"#).is_none(),
            "another protocol's member means nothing"
        );
    }

    #[test]
    fn sessions_and_caches_prefer_without_binding() {
        let by_header = hint(Protocol::Responses, &[("session-id", "s1")], "{}").unwrap();
        let by_body = hint(Protocol::Responses, &[], r#"{"prompt_cache_key":"s1"}"#).unwrap();
        assert_eq!(by_header, by_body);
        assert!(!by_header.is_binding());
        let cached = hint(Protocol::Messages, &[], r#"{"system":[{"cache_control":{}}]}"#).unwrap();
        assert_ne!(cached.number(), by_header.number());
        assert_eq!(hint(Protocol::Messages, &[("session-id", "")], "{}"), None);
    }

    #[test]
    fn callers_do_not_share_sessions() {
        let body = br#"{"previous_response_id":"resp_1"}"#;
        let of = |caller| {
            let found = continuity(Protocol::Responses, caller, &HeaderMap::new(), body);
            found.hint.unwrap()
        };
        assert_ne!(of("a").number(), of("b").number());
        assert_ne!(of("a").state(), of("b").state());
    }
}

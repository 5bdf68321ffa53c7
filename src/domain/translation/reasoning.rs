//! Reasoning across protocols. A model's opaque state is sent to the client in an opaque field of the client's protocol, wrapped
//! in a carrier that names the state's maker. When the client sends the field back, that maker gets the state unchanged.
//! Summaries of conversations are sent in the same way, but any model can get them. weir stores nothing.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The maximum length of a carrier, in bytes. A state that needs a longer one is dropped and reported.
pub(crate) const CARRIER_BYTES_MAX: usize = 256 * 1024;
/// The prefix of every carrier.
const PREFIX: &str = "weir1.";
/// The number of characters that identify a maker.
const MAKER_CHARS: usize = 8;
/// The letter that marks the summary of a conversation in a carrier.
const SUMMARY_KIND: char = 't';
/// The type of the item at the end of a Responses request for a summary, which replaces the conversation.
pub(crate) const COMPACTION_TRIGGER: &str = "compaction_trigger";

/// The maker of reasoning: a model of a provider, used with a particular credential. The state of one maker is meaningless to
/// another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReasoningMaker(String);

impl ReasoningMaker {
    /// Creates the maker from the provider, the model's name there and the name of the credential.
    pub(crate) fn new(provider: &str, upstream_model: &str, credential: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [provider, upstream_model, credential] {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let mut name = URL_SAFE_NO_PAD.encode(digest.finalize());
        name.truncate(MAKER_CHARS);
        Self(name)
    }
}

/// The state of a model's reasoning, in the form in which its maker accepts it in later requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReasoningState<'a> {
    /// A thinking block of Messages. Its kind in a carrier is `m`.
    #[serde(rename = "t")]
    Thinking {
        /// The text that the client gets.
        #[serde(rename = "t")]
        text: Cow<'a, str>,
        /// The signature.
        #[serde(rename = "s")]
        signature: Cow<'a, str>,
    },
    /// A redacted thinking block of Messages. Its kind in a carrier is `m`.
    #[serde(rename = "r")]
    Redacted {
        /// The data.
        #[serde(rename = "d")]
        data: Cow<'a, str>,
    },
    /// A reasoning item of Responses, as JSON text. Its kind in a carrier is `r`.
    #[serde(rename = "i")]
    Item {
        /// The item.
        #[serde(rename = "j")]
        json: Cow<'a, str>,
    },
    /// A Gemini thought signature for the part that follows. Its kind in a carrier is `g`.
    #[serde(rename = "g")]
    Signature {
        /// The signature.
        #[serde(rename = "s")]
        signature: Cow<'a, str>,
    },
    /// The reasoning text of a `chat/completions` provider. Its kind in a carrier is `c`.
    #[serde(rename = "c")]
    Text {
        /// The text.
        #[serde(rename = "t")]
        text: Cow<'a, str>,
    },
}

impl ReasoningState<'_> {
    /// Returns the kind of the state, a letter that marks it in a carrier.
    const fn kind(&self) -> char {
        match self {
            Self::Thinking { .. } | Self::Redacted { .. } => 'm',
            Self::Item { .. } => 'r',
            Self::Signature { .. } => 'g',
            Self::Text { .. } => 'c',
        }
    }

    /// Returns the total length of the state's strings, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Thinking { text, signature } => text.len() + signature.len(),
            Self::Redacted { data: text }
            | Self::Item { json: text }
            | Self::Signature { signature: text }
            | Self::Text { text } => text.len(),
        }
    }

    /// Returns the state with its own copies of all strings.
    pub(crate) fn into_owned(self) -> ReasoningState<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Thinking { text, signature } => ReasoningState::Thinking {
                text: owned(text),
                signature: owned(signature),
            },
            Self::Redacted { data } => ReasoningState::Redacted { data: owned(data) },
            Self::Item { json } => ReasoningState::Item { json: owned(json) },
            Self::Signature { signature } => ReasoningState::Signature {
                signature: owned(signature),
            },
            Self::Text { text } => ReasoningState::Text { text: owned(text) },
        }
    }

    /// Returns the carrier for this state; `None` if it would be longer than [`CARRIER_BYTES_MAX`]. `visible` is the text that
    /// the client gets in the same block as the carrier, and sends back together with the carrier. If the state's text equals
    /// `visible`, the carrier does not contain the text.
    pub(crate) fn wrap(&self, maker: &ReasoningMaker, visible: &str) -> Option<String> {
        let without_text = match self {
            Self::Thinking { text, signature } if text == visible && !visible.is_empty() => {
                Some(ReasoningState::Thinking {
                    text: Cow::Borrowed(""),
                    signature: Cow::Borrowed(signature.as_ref()),
                })
            }
            Self::Text { text } if text == visible && !visible.is_empty() => Some(ReasoningState::Text {
                text: Cow::Borrowed(""),
            }),
            _ => None,
        };
        let payload = serde_json::to_vec(without_text.as_ref().unwrap_or(self)).ok()?;
        carrier(maker, self.kind(), &payload)
    }
}

/// Returns the carrier with this payload; `None` if it would be longer than [`CARRIER_BYTES_MAX`].
fn carrier(maker: &ReasoningMaker, kind: char, payload: &[u8]) -> Option<String> {
    let mut carrier = format!("{PREFIX}{}.{kind}.", maker.0);
    URL_SAFE_NO_PAD.encode_string(payload, &mut carrier);
    (carrier.len() <= CARRIER_BYTES_MAX).then_some(carrier)
}

/// Returns the carrier for the summary of a conversation; `None` if it would be longer than [`CARRIER_BYTES_MAX`].
pub(crate) fn wrap_summary(summary: &str, maker: &ReasoningMaker) -> Option<String> {
    carrier(maker, SUMMARY_KIND, &serde_json::to_vec(summary).ok()?)
}

/// Returns the summary of a conversation that a client's opaque field contains, whichever maker wrote it; `None` if weir did not
/// create the field.
pub(crate) fn unwrap_summary(field: &str) -> Option<String> {
    if field.len() > CARRIER_BYTES_MAX {
        return None;
    }
    let (maker, rest) = field.strip_prefix(PREFIX)?.split_once('.')?;
    let payload = rest.strip_prefix(SUMMARY_KIND)?.strip_prefix('.')?;
    let summary: String = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    (maker.len() == MAKER_CHARS && !summary.is_empty()).then_some(summary)
}

/// The content of a client's opaque field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarriedReasoning {
    /// The state of the maker that the request is sent to.
    Own(ReasoningState<'static>),
    /// State of another maker or another gateway, or damaged state. It is dropped and reported.
    Foreign,
}

impl CarriedReasoning {
    /// Reads a client's opaque field. `visible` is the text in the same block. `maker` is the maker that the request is sent to.
    pub(crate) fn unwrap(field: &str, visible: &str, maker: &ReasoningMaker) -> Self {
        Self::read(field, visible, maker).map_or(Self::Foreign, Self::Own)
    }

    /// Returns the state if it belongs to the maker that the request is sent to. Returns `None` for the state of another maker,
    /// and for a state whose text is neither in the carrier nor sent back by the client.
    pub(crate) fn returned(field: &str, visible: &str, maker: &ReasoningMaker) -> Option<ReasoningState<'static>> {
        match Self::unwrap(field, visible, maker) {
            Self::Own(ReasoningState::Text { text }) if text.is_empty() => None,
            Self::Own(state) => Some(state),
            Self::Foreign => None,
        }
    }

    fn read(field: &str, visible: &str, maker: &ReasoningMaker) -> Option<ReasoningState<'static>> {
        if field.len() > CARRIER_BYTES_MAX {
            return None;
        }
        let rest = field
            .strip_prefix(PREFIX)?
            .strip_prefix(maker.0.as_str())?
            .strip_prefix('.')?;
        let (kind, payload) = rest.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let state: ReasoningState<'_> = serde_json::from_slice(&payload).ok()?;
        let mut letters = kind.chars();
        if letters.next() != Some(state.kind()) || letters.next().is_some() {
            return None;
        }
        Some(match state {
            ReasoningState::Thinking { text, signature } if text.is_empty() => ReasoningState::Thinking {
                text: Cow::Owned(visible.to_owned()),
                signature: Cow::Owned(signature.into_owned()),
            },
            ReasoningState::Text { text } if text.is_empty() => ReasoningState::Text {
                text: Cow::Owned(visible.to_owned()),
            },
            state => state.into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn maker() -> ReasoningMaker {
        ReasoningMaker::new("groq", "gpt-oss-120b", "a")
    }

    fn states() -> impl Strategy<Value = ReasoningState<'static>> {
        let owned = |text: String| Cow::<'static, str>::Owned(text);
        prop_oneof![
            (".+", ".*").prop_map(move |(text, signature)| ReasoningState::Thinking {
                text: owned(text),
                signature: owned(signature)
            }),
            ".*".prop_map(move |data| ReasoningState::Redacted { data: owned(data) }),
            ".*".prop_map(move |json| ReasoningState::Item { json: owned(json) }),
            ".*".prop_map(move |signature| ReasoningState::Signature {
                signature: owned(signature)
            }),
            ".+".prop_map(move |text| ReasoningState::Text { text: owned(text) }),
        ]
    }

    proptest! {
        #[test]
        fn a_state_returns_to_its_maker_as_it_was(state in states(), seen in ".*") {
            let visible = match &state {
                ReasoningState::Thinking { text, .. } | ReasoningState::Text { text } => vec![text.to_string(), seen],
                _ => vec![seen],
            };
            for visible in visible {
                let carrier = state.wrap(&maker(), &visible).unwrap();
                let back = CarriedReasoning::unwrap(&carrier, &visible, &maker());
                prop_assert_eq!(back, CarriedReasoning::Own(state.clone()));
            }
        }

        #[test]
        fn a_damaged_or_forged_carrier_is_foreign_and_never_fails(text in ".*", cut in 0_usize..400) {
            let state = ReasoningState::Redacted { data: "x".repeat(200).into() };
            let carrier = state.wrap(&maker(), "").unwrap();
            let damaged: String = carrier.chars().take(cut.min(carrier.len() - 1)).collect();
            for field in [text.clone(), format!("{PREFIX}{text}"), damaged, format!("{carrier}{text}*")] {
                prop_assert_eq!(CarriedReasoning::unwrap(&field, "", &maker()), CarriedReasoning::Foreign);
            }
        }
    }

    proptest! {
        #[test]
        fn a_summary_is_read_whoever_made_it(summary in ".{1,40}", text in ".*", cut in 0_usize..80) {
            let carrier = wrap_summary(&summary, &maker()).unwrap();
            prop_assert_eq!(unwrap_summary(&carrier), Some(summary.clone()));
            prop_assert_eq!(CarriedReasoning::unwrap(&carrier, &summary, &maker()), CarriedReasoning::Foreign);
            let damaged: String = carrier.chars().take(cut.min(carrier.len() - 1)).collect();
            for field in [text.clone(), format!("{PREFIX}{text}"), damaged, format!("{carrier}{text}*")] {
                prop_assert_eq!(unwrap_summary(&field), None);
            }
        }
    }

    #[test]
    fn reasoning_is_no_summary_and_a_long_summary_has_no_carrier() {
        let state = ReasoningState::Text { text: "because".into() };
        assert_eq!(unwrap_summary(&state.wrap(&maker(), "").unwrap()), None);
        let overhead = PREFIX.len() + MAKER_CHARS + 3;
        let most = "x".repeat((CARRIER_BYTES_MAX - overhead) / 4 * 3 - "\"\"".len());
        let carrier = wrap_summary(&most, &maker()).unwrap();
        assert_eq!(unwrap_summary(&carrier), Some(most.clone()));
        assert_eq!(unwrap_summary(&format!("{carrier}AAAA")), None);
        assert_eq!(wrap_summary(&format!("{most}xxx"), &maker()), None);
    }

    #[test]
    fn a_text_that_the_client_has_not_returned_is_not_sent_back() {
        let state = ReasoningState::Text { text: "because".into() };
        let carrier = state.wrap(&maker(), "because").unwrap();
        assert_eq!(CarriedReasoning::returned(&carrier, "", &maker()), None);
        assert_eq!(CarriedReasoning::returned(&carrier, "because", &maker()), Some(state));
        assert_eq!(CarriedReasoning::returned("", "because", &maker()), None);
    }

    #[test]
    fn another_maker_cannot_read_it() {
        let state = ReasoningState::Text { text: "because".into() };
        let carrier = state.wrap(&maker(), "because").unwrap();
        assert!(!carrier.contains("because"));
        for other in [
            ReasoningMaker::new("groq", "gpt-oss-120b", "b"),
            ReasoningMaker::new("groq", "other", "a"),
            ReasoningMaker::new("cerebras", "gpt-oss-120b", "a"),
        ] {
            assert_eq!(
                CarriedReasoning::unwrap(&carrier, "because", &other),
                CarriedReasoning::Foreign
            );
        }
    }

    #[test]
    fn a_state_that_is_too_large_has_no_carrier() {
        let state = |bytes: usize| ReasoningState::Redacted {
            data: "x".repeat(bytes).into(),
        };
        let overhead = PREFIX.len() + MAKER_CHARS + 3;
        let most = (CARRIER_BYTES_MAX - overhead) / 4 * 3 - r#"{"r":{"d":""}}"#.len();
        assert!(state(most).wrap(&maker(), "").is_some());
        assert_eq!(state(most + 3).wrap(&maker(), ""), None);
    }
}

//! The protocols of providers as a closed enum. Its functions delegate to the module of each protocol.

use crate::domain::wire::UpstreamProtocol;
use crate::domain::wire::json_pick::{PathSet, Picker, Picks};
use crate::domain::wire::protocol::AnswerFacts;
use crate::domain::wire::protocol::created_state::CreatedState;
use crate::domain::wire::protocol::varying::TextDelta;
use crate::domain::wire::protocol::{Break, chat, gemini, messages, responses};
use crate::domain::wire::usage::{PriceModifiers, UnlimitedWork, UsageSource};
use crate::domain::wire::usage::{Run, Usage};

/// The state of reading one answer, for each protocol.
#[derive(Clone, Debug)]
pub(super) enum AnswerDialect {
    Messages(messages::MessagesState),
    Responses(responses::ResponsesState),
    Gemini(gemini::GeminiState),
    Chat(chat::ChatState),
}

impl AnswerDialect {
    pub(super) fn new(protocol: UpstreamProtocol) -> Self {
        match protocol {
            UpstreamProtocol::Messages => Self::Messages(messages::MessagesState::default()),
            UpstreamProtocol::Responses => Self::Responses(responses::ResponsesState::default()),
            UpstreamProtocol::Gemini => Self::Gemini(gemini::GeminiState::default()),
            UpstreamProtocol::Chat => Self::Chat(chat::ChatState::default()),
        }
    }

    /// Returns the paths to pick out of the answer's events or body.
    pub(super) fn paths(&self) -> &'static PathSet {
        match self {
            Self::Messages(_) => &messages::PATHS,
            Self::Responses(_) => &responses::PATHS,
            Self::Gemini(_) => &gemini::PATHS,
            Self::Chat(_) => &chat::PATHS,
        }
    }

    /// Handles an event of a stream. The picker has read the event completely. `name` is the event's `event` field, which is used
    /// if the event's data has no `type`.
    pub(super) fn on_event(&mut self, picker: &Picker, name: &[u8], facts: &mut AnswerFacts) {
        match self {
            Self::Messages(state) => state.on_event(picker, name, facts),
            Self::Responses(state) => state.on_event(picker, name, facts),
            Self::Gemini(state) => state.on_chunk(picker, facts),
            Self::Chat(state) => state.on_chunk(picker, facts),
        }
        facts.has_begun =
            facts.has_begun || facts.error.is_none() && picker.is_done() && self.is_answer_event(picker, name);
        self.record_created_state(picker, &mut facts.created_state);
    }

    /// Whether the event belongs to an answer, rather than only keeping the connection alive.
    fn is_answer_event(&self, picks: &Picks<'_>, name: &[u8]) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::is_answer_event(picks, name),
            Self::Responses(_) => responses::ResponsesState::is_answer_event(picks, name),
            Self::Gemini(_) => gemini::GeminiState::is_answer_event(picks),
            Self::Chat(_) => chat::ChatState::is_answer_event(picks),
        }
    }

    /// Handles `[DONE]`, which follows the last event.
    pub(super) fn on_done(&mut self, facts: &mut AnswerFacts) {
        match self {
            Self::Chat(state) => state.on_done(facts),
            Self::Messages(_) | Self::Responses(_) | Self::Gemini(_) => {}
        }
    }

    /// Records the state that the answer has created at the provider, from an event or a body that the picker has read
    /// completely.
    pub(super) fn record_created_state(&self, picks: &Picks<'_>, made: &mut CreatedState) {
        match self {
            Self::Messages(_) => made.record_messages(picks, messages::MADE),
            Self::Responses(_) => made.record_responses(picks, responses::MADE),
            Self::Gemini(_) => made.record_gemini(picks, gemini::MADE),
            // Answers of this protocol name no state.
            Self::Chat(_) => {}
        }
    }

    /// Returns the members that can have other values in the next event, if this event only adds text to an answer that already
    /// has content; `None` for any other event. If a later event differs from this event only in its text and in these members,
    /// it adds its text to the answer. Apart from that, it can change only the sequence number (see [`Self::set_number`]) and the
    /// usage (see [`Self::set_usage`]).
    pub(super) fn text_delta(&self, picks: &Picks<'_>) -> Option<TextDelta> {
        let varying = match self {
            Self::Messages(_) => messages::MessagesState::is_text_delta(picks).then_some([].as_slice())?,
            Self::Responses(_) => responses::ResponsesState::varying_members(picks)?,
            Self::Gemini(_) => return gemini::GeminiState::text_delta(picks),
            Self::Chat(_) => return chat::ChatState::text_delta(picks),
        };
        Some(TextDelta { varying, usage: None })
    }

    /// Records the sequence number of an event that only adds text.
    pub(super) fn set_number(&mut self, number: u64) {
        match self {
            Self::Responses(state) => state.set_number(number),
            Self::Messages(_) | Self::Gemini(_) | Self::Chat(_) => {}
        }
    }

    /// Whether this event, which only adds text, also reports something that a later event would revoke: that the answer or a
    /// part of it has ended, or that another model answers. `facts` are the facts before this event.
    pub(super) fn is_revocable(&self, picks: &Picks<'_>, facts: &AnswerFacts) -> bool {
        match self {
            Self::Gemini(_) => gemini::GeminiState::is_revocable(picks, facts),
            Self::Chat(state) => state.is_revocable(picks, facts),
            Self::Messages(_) | Self::Responses(_) => false,
        }
    }

    /// Records the usage in an event that otherwise only adds text.
    pub(super) fn set_usage(&mut self, usage: &[u8]) {
        match self {
            Self::Gemini(state) => state.set_usage(Some(usage)),
            Self::Messages(_) | Self::Responses(_) | Self::Chat(_) => {}
        }
    }

    /// Handles the body of a non-streaming answer, as far as the picker has read it.
    pub(super) fn on_body(&mut self, picks: &Picks<'_>, facts: &mut AnswerFacts) {
        match self {
            Self::Messages(state) => state.on_body(picks, facts),
            Self::Responses(state) => state.on_body(picks, facts),
            Self::Gemini(state) => state.on_chunk(picks, facts),
            Self::Chat(state) => state.on_chunk(picks, facts),
        }
    }

    /// Whether the body of a non-streaming answer has content.
    pub(super) fn body_has_content(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::body_has_content(picks),
            Self::Responses(_) => responses::ResponsesState::body_has_content(picks),
            Self::Gemini(_) => gemini::GeminiState::has_content(picks),
            Self::Chat(_) => chat::ChatState::body_has_content(picks),
        }
    }

    /// Whether an event or element, which the picker has read completely, is an error. An unreadable one is treated as an error.
    pub(super) fn is_error(&self, picker: &Picker, name: &[u8]) -> bool {
        if self.is_known_answer_event(picker) || picker.is_inert() {
            return !self.is_known_answer_event(picker);
        }
        match self {
            Self::Messages(_) => messages::MessagesState::is_error(picker, name),
            Self::Responses(_) => responses::ResponsesState::is_error(picker, name),
            Self::Gemini(_) => gemini::GeminiState::is_error(picker),
            Self::Chat(_) => chat::ChatState::is_error(picker),
        }
    }

    /// Whether the body of a non-streaming answer, which the picker has read completely, is an error.
    pub(super) fn is_body_error(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::is_failure(picks),
            Self::Responses(_) => responses::ResponsesState::is_failure(picks),
            Self::Gemini(_) => gemini::GeminiState::is_error(picks),
            Self::Chat(_) => chat::ChatState::is_error(picks),
        }
    }

    /// Whether the picker has read enough of an event to know that it belongs to an answer and is not an error.
    pub(super) fn is_known_answer_event(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::is_known_answer_event(picks),
            Self::Responses(_) => responses::ResponsesState::is_known_answer_event(picks),
            // The member that makes the event an error may be the last one.
            Self::Gemini(_) | Self::Chat(_) => false,
        }
    }

    /// Returns the reported usage; `None` without a report. `runs` must be the result of [`Self::runs`].
    pub(super) fn usage(&self, runs: &[Run]) -> Option<Usage> {
        match self {
            Self::Messages(state) => state.usage(runs),
            Self::Responses(state) => state.usage(),
            Self::Gemini(state) => state.usage(),
            Self::Chat(state) => state.usage(),
        }
    }

    /// Returns the reported work that the requested output limit does not cover.
    pub(super) fn unlimited(&self) -> UnlimitedWork {
        match self {
            Self::Messages(state) => state.unlimited(),
            Self::Responses(state) => state.unlimited(),
            Self::Gemini(state) => state.unlimited(),
            Self::Chat(_) => UnlimitedWork::default(),
        }
    }

    /// Returns the usage of each run of a model; empty unless the answer reports several runs.
    pub(super) fn runs(&self) -> Vec<Run> {
        match self {
            Self::Messages(state) => state.runs(),
            Self::Responses(_) | Self::Gemini(_) | Self::Chat(_) => Vec::new(),
        }
    }

    /// Returns whether the reported usage is final; `None` without a report. `body_whole` is true if the body of a non-streaming
    /// answer has ended.
    pub(super) fn usage_source(&self, facts: &AnswerFacts, body_whole: bool) -> Option<UsageSource> {
        match self {
            Self::Messages(state) => state.usage_source(facts, body_whole),
            Self::Responses(state) => state.usage_source(),
            Self::Gemini(state) => state.usage_source(facts, body_whole),
            Self::Chat(state) => state.usage_source(body_whole),
        }
    }

    pub(super) fn modifiers(&self) -> PriceModifiers {
        match self {
            Self::Messages(state) => state.modifiers(),
            Self::Responses(state) => state.modifiers(),
            Self::Gemini(state) => state.modifiers(),
            Self::Chat(state) => state.modifiers(),
        }
    }

    /// Returns the in-band error as a server-sent event. If this state has not handled the last event, `number` is the sequence
    /// number of that event; otherwise it is `None`.
    pub(super) fn failure_event(&self, why: Break, facts: &AnswerFacts, number: Option<u64>) -> Vec<u8> {
        match self {
            Self::Messages(_) => messages::failure_event(why),
            Self::Responses(state) => state.failure_event(why, facts, number),
            Self::Gemini(_) => gemini::failure_event(why),
            // No client uses this protocol. The writer of the client's protocol writes the error.
            Self::Chat(_) => Vec::new(),
        }
    }

    /// Returns the in-band error as the last element of a JSON array; `None` if the protocol has no streams of that form.
    pub(super) fn failure_element(&self, why: Break) -> Option<Vec<u8>> {
        match self {
            Self::Gemini(_) => Some(gemini::failure_chunk(why).to_string().into_bytes()),
            Self::Messages(_) | Self::Responses(_) | Self::Chat(_) => None,
        }
    }

    /// Whether `data: [DONE]` ends a stream of this protocol (docs/interface.md, Streams). In a Gemini-style stream, it would
    /// break clients.
    pub(super) const fn ends_with_done(&self) -> bool {
        matches!(self, Self::Responses(_))
    }

    /// Returns the number of bytes of heap memory in buffers that grow with the reports.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Messages(state) => state.heap_bytes(),
            Self::Responses(_) | Self::Chat(_) => 0,
            Self::Gemini(state) => state.heap_bytes(),
        }
    }
}

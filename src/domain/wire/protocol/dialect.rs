//! The three protocols as a closed enum. Every function delegates to the protocol's own module.

use crate::domain::wire::json_pick::{PathSet, Picker, Picks};
use crate::domain::wire::protocol::facts::Facts;
use crate::domain::wire::protocol::made::Made;
use crate::domain::wire::protocol::varying::Spoken;
use crate::domain::wire::protocol::{Break, Protocol, gemini, messages, responses};
use crate::domain::wire::usage::{Modifiers, Unlimited, UsageSource};
use crate::domain::wire::usage::{Run, Usage};

/// A protocol with what its answer has reported.
#[derive(Clone, Debug)]
pub(super) enum Dialect {
    Messages(messages::MessagesState),
    Responses(responses::ResponsesState),
    Gemini(gemini::GeminiState),
}

impl Dialect {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Messages => Self::Messages(messages::MessagesState::default()),
            Protocol::Responses => Self::Responses(responses::ResponsesState::default()),
            Protocol::Gemini => Self::Gemini(gemini::GeminiState::default()),
        }
    }

    /// What to pick out of events and bodies.
    pub(super) fn paths(&self) -> &'static PathSet {
        match self {
            Self::Messages(_) => &messages::PATHS,
            Self::Responses(_) => &responses::PATHS,
            Self::Gemini(_) => &gemini::PATHS,
        }
    }

    /// One event of a stream, which the picker has read whole; `name` is its `event` field, used when its data has no `type`.
    pub(super) fn event(&mut self, picker: &Picker, name: &[u8], facts: &mut Facts) {
        match self {
            Self::Messages(state) => state.event(picker, name, facts),
            Self::Responses(state) => state.event(picker, name, facts),
            Self::Gemini(state) => state.chunk(picker, facts),
        }
        facts.begun = facts.begun || facts.error.is_none() && picker.is_done() && self.says_something(picker, name);
        self.made(picker, &mut facts.made);
    }

    /// Whether the event belongs to an answer, and does not only keep the connection busy.
    fn says_something(&self, picks: &Picks<'_>, name: &[u8]) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::says_something(picks, name),
            Self::Responses(_) => responses::ResponsesState::says_something(picks, name),
            Self::Gemini(_) => gemini::GeminiState::says_something(picks),
        }
    }

    /// Takes in what an event or a body, which the picker has read whole, says that the answer has made.
    pub(super) fn made(&self, picks: &Picks<'_>, made: &mut Made) {
        match self {
            Self::Messages(_) => made.note_messages(picks, messages::MADE),
            Self::Responses(_) => made.note_responses(picks, responses::MADE),
            Self::Gemini(_) => made.note_gemini(picks, gemini::MADE),
        }
    }

    /// Whether an event that the picker has read whole can say nothing but more text once content was seen: another one that
    /// differs in nothing but that text, and in the members given here, changes nothing either, but for the number (see
    /// [`Self::numbered`]) and the usage (see [`Self::used`]). `None` for any other event.
    pub(super) fn only_speaks(&self, picks: &Picks<'_>) -> Option<Spoken> {
        let varying = match self {
            Self::Messages(_) => messages::MessagesState::only_speaks(picks).then_some([].as_slice())?,
            Self::Responses(_) => responses::ResponsesState::only_speaks(picks)?,
            Self::Gemini(_) => return gemini::GeminiState::only_speaks(picks),
        };
        Some(Spoken { varying, usage: None })
    }

    /// An event that only speaks has come, with this number.
    pub(super) fn numbered(&mut self, number: u64) {
        match self {
            Self::Responses(state) => state.numbered(number),
            Self::Messages(_) | Self::Gemini(_) => {}
        }
    }

    /// Whether an event that the picker has read whole says what a later event which only speaks takes back: the end of the
    /// answer or a part of it, or another model. `facts`: those before the event.
    pub(super) fn can_be_taken_back(&self, picks: &Picks<'_>, facts: &Facts) -> bool {
        match self {
            Self::Gemini(_) => gemini::GeminiState::can_be_taken_back(picks, facts),
            Self::Messages(_) | Self::Responses(_) => false,
        }
    }

    /// An event that only speaks has come, with this usage.
    pub(super) fn used(&mut self, usage: &[u8]) {
        match self {
            Self::Gemini(state) => state.used(Some(usage)),
            Self::Messages(_) | Self::Responses(_) => {}
        }
    }

    /// The body of an answer that is not a stream, as far as the picker has read it.
    pub(super) fn body(&mut self, picks: &Picks<'_>, facts: &mut Facts) {
        match self {
            Self::Messages(state) => state.body(picks, facts),
            Self::Responses(state) => state.body(picks, facts),
            Self::Gemini(state) => state.chunk(picks, facts),
        }
    }

    /// Whether content was seen in such a body.
    pub(super) fn body_has_content(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::body_has_content(picks),
            Self::Responses(_) => responses::ResponsesState::body_has_content(picks),
            Self::Gemini(_) => gemini::GeminiState::has_content(picks),
        }
    }

    /// Whether an event or element, which the picker has read whole, is an error. What cannot be read is none of an answer.
    pub(super) fn is_error(&self, picker: &Picker, name: &[u8]) -> bool {
        if self.is_answers(picker) || picker.is_inert() {
            return !self.is_answers(picker);
        }
        match self {
            Self::Messages(_) => messages::MessagesState::is_error(picker, name),
            Self::Responses(_) => responses::ResponsesState::is_error(picker, name),
            Self::Gemini(_) => gemini::GeminiState::is_error(picker),
        }
    }

    /// Whether the body of an answer that is not a stream, which the picker has read whole, is an error.
    pub(super) fn is_body_error(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::is_failure(picks),
            Self::Responses(_) => responses::ResponsesState::is_failure(picks),
            Self::Gemini(_) => gemini::GeminiState::is_error(picks),
        }
    }

    /// Whether an event is known to be one of an answer, and no error, by what the picker has read of it so far.
    pub(super) fn is_answers(&self, picks: &Picks<'_>) -> bool {
        match self {
            Self::Messages(_) => messages::MessagesState::is_answers(picks),
            Self::Responses(_) => responses::ResponsesState::is_answers(picks),
            // An error may stand behind everything else.
            Self::Gemini(_) => false,
        }
    }

    /// The usage that was reported. `runs`: those that [`Self::runs`] has given.
    pub(super) fn usage(&self, runs: &[Run]) -> Option<Usage> {
        match self {
            Self::Messages(state) => state.usage(runs),
            Self::Responses(state) => state.usage(),
            Self::Gemini(state) => state.usage(),
        }
    }

    /// What was done beside the requested limit of output.
    pub(super) fn unlimited(&self) -> Unlimited {
        match self {
            Self::Messages(state) => state.unlimited(),
            Self::Responses(state) => state.unlimited(),
            Self::Gemini(state) => state.unlimited(),
        }
    }

    /// What each run of a model consumed, where the answer tells of several; else nothing.
    pub(super) fn runs(&self) -> Vec<Run> {
        match self {
            Self::Messages(state) => state.runs(),
            Self::Responses(_) | Self::Gemini(_) => Vec::new(),
        }
    }

    /// Whether what was reported is the last word; `None` when nothing was. `body_whole`: it is the end of a body in one piece.
    pub(super) fn usage_source(&self, facts: &Facts, body_whole: bool) -> Option<UsageSource> {
        match self {
            Self::Messages(state) => state.usage_source(facts, body_whole),
            Self::Responses(state) => state.usage_source(),
            Self::Gemini(state) => state.usage_source(facts, body_whole),
        }
    }

    pub(super) fn modifiers(&self) -> Modifiers {
        match self {
            Self::Messages(state) => state.modifiers(),
            Self::Responses(state) => state.modifiers(),
            Self::Gemini(state) => state.modifiers(),
        }
    }

    /// The in-band error as a server-sent event. `number`: that of a later event than those that have been taken in.
    pub(super) fn failure_event(&self, why: Break, facts: &Facts, number: Option<u64>) -> Vec<u8> {
        match self {
            Self::Messages(_) => messages::failure_event(why),
            Self::Responses(state) => state.failure_event(why, facts, number),
            Self::Gemini(_) => gemini::failure_event(why),
        }
    }

    /// The in-band error as an array's last element, where the protocol has such a stream.
    pub(super) fn failure_element(&self, why: Break) -> Option<Vec<u8>> {
        match self {
            Self::Gemini(_) => Some(gemini::failure_chunk(why).to_string().into_bytes()),
            Self::Messages(_) | Self::Responses(_) => None,
        }
    }

    /// Whether `data: [DONE]` ends a stream (docs/interface.md, Streams). In a Gemini-style stream it breaks clients.
    pub(super) const fn ends_with_done(&self) -> bool {
        matches!(self, Self::Responses(_))
    }

    /// The bytes of heap memory in buffers that grow with what is reported.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Messages(state) => state.heap_bytes(),
            Self::Responses(_) => 0,
            Self::Gemini(state) => state.heap_bytes(),
        }
    }
}

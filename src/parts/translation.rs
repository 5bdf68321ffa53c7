//! Entry points to translation for benches and fuzz targets: single requests, answers and carriers of reasoning, without a
//! gateway.

use serde::{
    Deserialize,
    de::{
        IntoDeserializer,
        value::{Error, StrDeserializer},
    },
};

use crate::domain::{
    translation::{
        ChatReasoning, ChatTraits, Translation, TranslationTarget,
        answer::write::{AnswerForm, AnswerFrame},
        reasoning::{CarriedReasoning, ReasoningMaker, ReasoningState},
        tool_names::ToolNames,
        translate_request,
        translator::AnswerTranslator,
    },
    wire::{Protocol, protocol::Break},
};

pub use crate::domain::{
    translation::losses::TranslationMode,
    wire::{UpstreamProtocol, usage::Usage},
};

/// The provider, model and credential that make the reasoning.
const MAKER: [&str; 3] = ["host", "model", "a"];
/// The model's name at the provider. Gemini's rules for reasoning depend on it.
const MODEL: &str = "gemini-3-pro-preview";
/// The client's request. A Responses answer repeats some of its members.
const REPEATED_REQUEST: &str = r#"{"model":"big","input":"hi"}"#;
/// The time at which an answer begins, in seconds since the Unix epoch.
const CREATED_UNIX: i64 = 1_790_000_000;
/// The time at which an answer ends, in seconds since the Unix epoch.
const ENDED_UNIX: i64 = CREATED_UNIX + 9;
/// The HTTP status of the in-band error for an answer that cannot be translated.
const UNTRANSLATABLE_STATUS: u16 = 502;
/// The HTTP status of the in-band error for an answer that ends too early.
const INCOMPLETE_STATUS: u16 = 503;

/// The protocols of a client and of a provider, between which requests and answers are translated.
#[derive(Debug)]
pub struct ProtocolPair {
    translation: Translation,
    maker: ReasoningMaker,
}

/// A request that was translated for a [`ProtocolPair`]'s provider.
#[derive(Debug)]
pub struct PairRequest {
    /// The body for the provider.
    pub body: String,
    /// The value of the answer's header `weir-translation`.
    pub header: String,
    names: ToolNames,
}

/// The form of answer that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairAnswerForm {
    /// A stream of server-sent events.
    Stream,
    /// One JSON object.
    Whole,
    /// A stream as a JSON array, for Gemini clients.
    Array,
}

/// An answer of a [`ProtocolPair`]'s provider while it is translated.
#[derive(Debug)]
pub struct PairAnswer(AnswerTranslator);

impl ProtocolPair {
    /// Creates the pair of a client and a provider with these protocols. A `chat/completions` provider has the default traits.
    pub fn new(client: Protocol, provider: UpstreamProtocol, mode: TranslationMode) -> Self {
        let [host, model, credential] = MAKER;
        Self {
            translation: Translation {
                from: client,
                to: provider,
                mode,
                chat: ChatTraits::default(),
            },
            maker: ReasoningMaker::new(host, model, credential),
        }
    }

    /// Sets the place in which a `chat/completions` provider returns its reasoning. `word` is the value of the corresponding
    /// setting in `[chat]` of a provider's file. Returns `None` if the value is not valid.
    #[must_use]
    pub fn with_chat_reasoning(mut self, word: &str) -> Option<Self> {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        self.translation.chat.reasoning = ChatReasoning::deserialize(word).ok()?;
        Some(self)
    }

    /// Translates a client's request for a stream.
    ///
    /// # Errors
    /// Returns the message of the refusal if the request would lose content or state.
    pub fn translate_request(&self, body: &str) -> Result<PairRequest, String> {
        let target = TranslationTarget {
            translation: &self.translation,
            model: MODEL,
            output_tokens_max: None,
            maker: &self.maker,
        };
        let translated = translate_request(body, true, &target).map_err(|refusal| refusal.to_string())?;
        Ok(PairRequest {
            header: translated.losses.header(self.translation.from, self.translation.to),
            body: translated.body,
            names: translated.names,
        })
    }

    /// Begins the translation of an answer. `request` provides the names of the client's tools; `None` for a client without
    /// tools. `form` is the form of the client's answer, and `is_stream` says whether the provider answers with events.
    pub fn begin_answer(&self, request: Option<&PairRequest>, form: PairAnswerForm, is_stream: bool) -> PairAnswer {
        let frame = AnswerFrame {
            form: match form {
                PairAnswerForm::Stream => AnswerForm::Stream,
                PairAnswerForm::Whole => AnswerForm::Whole,
                PairAnswerForm::Array => AnswerForm::Array,
            },
            id: "7f".to_owned(),
            model: "big".to_owned(),
            created_unix: CREATED_UNIX,
            input_estimate: 25,
            shows_reasoning: true,
            maker: self.maker.clone(),
            names: request.map(|request| request.names.clone()).unwrap_or_default(),
            request: REPEATED_REQUEST.to_owned(),
        };
        PairAnswer(AnswerTranslator::new(&self.translation, frame, is_stream))
    }

    /// Wraps a reasoning state, given as JSON, into a carrier for a client that also gets the text `visible`. Returns `None` if
    /// the JSON is not a reasoning state, or if the carrier would be too long.
    pub fn wrap_state(&self, state: &str, visible: &str) -> Option<String> {
        let state: ReasoningState<'_> = serde_json::from_str(state).ok()?;
        state.wrap(&self.maker, visible)
    }

    /// Extracts the reasoning state from a client's opaque field, and returns it as JSON. The client sends the field together
    /// with the text `visible`. Returns `None` if the field is not a carrier of the pair's provider.
    pub fn unwrap_state(&self, field: &str, visible: &str) -> Option<String> {
        match CarriedReasoning::unwrap(field, visible, &self.maker) {
            CarriedReasoning::Own(state) => serde_json::to_string(&state).ok(),
            CarriedReasoning::Foreign => None,
        }
    }
}

impl PairAnswer {
    /// Translates the next bytes of the provider's body, and appends the bytes for the client to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.0.push(bytes, out);
    }

    /// Handles the end of the provider's body, and appends the last bytes for the client to `out`. If the answer is complete,
    /// these bytes are its end with the given usage. Otherwise, they are an in-band error. Returns true if the provider has
    /// completed the answer, or has reported in its stream that the answer failed. Returns false if the body ended earlier or
    /// cannot be translated.
    pub fn end(&mut self, usage: &Usage, out: &mut String) -> bool {
        self.0.on_end(out);
        match self.0.fault() {
            Some(fault) => self.0.fail(UNTRANSLATABLE_STATUS, &fault.to_string(), out),
            None if self.0.is_complete() => {
                self.0.finish(usage, ENDED_UNIX, out);
                return true;
            }
            None => self.0.fail(INCOMPLETE_STATUS, Break::ProviderEnded.message(), out),
        }
        false
    }
}

//! Translates a request for a provider that speaks another protocol, and the provider's answer for the client.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::{
    domain::{
        catalogue::Model,
        faults::refusal::Refusal,
        rules::ResponseRewriter,
        translation::{
            Translation, TranslationTarget,
            answer::{AnswerFault, write::AnswerFrame},
            answer_form,
            losses::{LossVerdict, TranslationLosses, TranslationMode},
            reasoning::ReasoningMaker,
            tool_names::ToolNames,
            translate_request,
            translator::AnswerTranslator,
        },
        wire::{
            Protocol,
            protocol::{AnswerFraming, Break},
            usage::Usage,
        },
    },
    edges::clock,
    gateway::request::Request,
    providers::Endpoint,
};

/// The header of a translated answer that lists the losses of the translation (docs/translation.md).
pub(crate) const TRANSLATION_HEADER: &str = "weir-translation";

/// The HTTP status for an answer that cannot be translated completely.
const UNTRANSLATED: u16 = 502;

/// The expected length of a translated piece, as a multiple of the provider's piece.
const EXPANSION: usize = 2;

/// The translation of a request for one endpoint and credential.
#[derive(Debug)]
pub(crate) struct RequestTranslation {
    translation: Translation,
    maker: ReasoningMaker,
    losses: TranslationLosses,
    names: ToolNames,
    shows_reasoning: bool,
    /// The client's body if the client speaks Responses, because the answer then repeats some members of the body; otherwise
    /// empty.
    repeated: String,
}

/// Returns the maker of reasoning for an endpoint and the credential with the name `credential`; `None` if the provider speaks
/// the client's protocol.
pub(crate) fn maker(endpoint: &Endpoint, credential: &str) -> Option<ReasoningMaker> {
    endpoint.translation.as_ref()?;
    Some(ReasoningMaker::new(
        &endpoint.provider.name,
        &endpoint.upstream_model,
        credential,
    ))
}

/// Returns the translation with the mode that applies to this request: the strict mode if the client's header demands it,
/// otherwise the model's mode.
pub(crate) fn tightened<'t>(translation: &'t Translation, headers: &HeaderMap) -> Cow<'t, Translation> {
    let demanded = headers.get(TRANSLATION_HEADER).map(HeaderValue::as_bytes);
    match demanded == Some(TranslationMode::Strict.as_str().as_bytes()) {
        true => Cow::Owned(Translation {
            mode: TranslationMode::Strict,
            ..translation.clone()
        }),
        false => Cow::Borrowed(translation),
    }
}

impl RequestTranslation {
    /// Translates a client's body for an endpoint. Returns the body for the provider, and the translation.
    ///
    /// # Errors
    /// Returns the refusal of a body that cannot be translated without losing content or state.
    pub(crate) fn translate(
        endpoint: &Endpoint,
        (maker, translation): (ReasoningMaker, &Translation),
        (model, stream): (&Model, bool),
        body: &[u8],
    ) -> Result<(String, Self), Refusal> {
        let text = std::str::from_utf8(body).map_err(|_| Refusal::Internal)?;
        let target = TranslationTarget {
            translation,
            model: &endpoint.upstream_model,
            output_tokens_max: model.output_tokens,
            maker: &maker,
        };
        let translated = translate_request(text, stream, &target).map_err(|error| Refusal::Untranslatable {
            path: error.path,
            reason: error.reason.into_owned(),
        })?;
        let repeated = match translation.from {
            Protocol::Responses => text.to_owned(),
            Protocol::Messages | Protocol::Gemini => String::new(),
        };
        let this = Self {
            translation: translation.clone(),
            losses: translated.losses,
            names: translated.names,
            shows_reasoning: translated.shows_reasoning,
            repeated,
            maker,
        };
        Ok((translated.body, this))
    }

    /// Whether the request was translated for reasoning of this maker.
    pub(crate) fn is_for(&self, maker: &ReasoningMaker) -> bool {
        self.maker == *maker
    }

    /// Returns the value of the header [`TRANSLATION_HEADER`].
    pub(crate) fn header(&self) -> String {
        self.losses.header(self.translation.from, self.translation.to)
    }

    /// Returns both protocols, for the access log.
    pub(crate) fn label(&self) -> String {
        format!("{}->{}", self.translation.from.as_str(), self.translation.to.as_str())
    }

    /// Returns one item for each loss: both protocols and the verdict, as metric labels.
    pub(crate) fn counts(&self) -> impl Iterator<Item = [&'static str; 3]> {
        let verdicts = LossVerdict::ALL.into_iter();
        verdicts.flat_map(|verdict| {
            let labels = [
                self.translation.from.as_str(),
                self.translation.to.as_str(),
                verdict.as_str(),
            ];
            std::iter::repeat_n(labels, self.losses.count(verdict))
        })
    }

    /// Returns the verdict and the path of each loss, for the access log. Members that weir does not know are left out, because
    /// their names can be any text.
    pub(crate) fn known_losses(&self) -> impl Iterator<Item = String> {
        let known = self.losses.iter().filter(|loss| loss.verdict != LossVerdict::Unknown);
        known.map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
    }

    /// Returns the number of losses that are counted but not listed.
    pub(crate) fn omitted_losses(&self) -> usize {
        self.losses.omitted()
    }

    /// Begins the translation of an answer with this framing. `rewriter` edits the provider's answer before it is translated;
    /// `None` if the provider's file has no edits for it.
    pub(crate) fn answer(
        self: &Arc<Self>,
        request: &Request,
        request_id: &str,
        (framing, rewriter): (AnswerFraming, Option<ResponseRewriter>),
    ) -> AnswerTranslation {
        let has_parameter = |query: &str| query.split('&').any(|parameter| parameter == "alt=sse");
        let is_sse = request.query.as_deref().is_some_and(has_parameter);
        let frame = AnswerFrame {
            form: answer_form(request.stream, self.translation.from == Protocol::Gemini && !is_sse),
            id: request_id.strip_prefix("req_").unwrap_or(request_id).to_owned(),
            model: request.asked.clone(),
            created_unix: clock::unix_seconds(),
            input_estimate: request.scan.input_tokens,
            shows_reasoning: self.shows_reasoning,
            maker: self.maker.clone(),
            names: self.names.clone(),
            request: self.repeated.clone(),
        };
        AnswerTranslation {
            is_sse: request.stream && (self.translation.from != Protocol::Gemini || is_sse),
            rewriter,
            translator: AnswerTranslator::new(&self.translation, frame, framing == AnswerFraming::Sse),
            request: Arc::clone(self),
            end: TranslationEnd::Open,
        }
    }
}

/// Returns the HTTP status that determines the in-band error for this break. The error is the same as for an untranslated answer
/// in the client's protocol.
fn failure_status(protocol: Protocol, why: Break) -> u16 {
    match (protocol, why) {
        (Protocol::Messages | Protocol::Responses, Break::LimitReached) => 402,
        (Protocol::Gemini, Break::LimitReached) => 429,
        (Protocol::Gemini, Break::ProviderTimeout) => 504,
        (Protocol::Gemini, Break::ProviderCut | Break::ProviderEnded | Break::Stopped) => 503,
        (Protocol::Messages, Break::ProviderCut | Break::ProviderEnded | Break::ProviderTimeout | Break::Stopped) => {
            529
        }
        (_, Break::Internal) => 500,
        (Protocol::Responses, Break::ProviderCut | Break::ProviderEnded | Break::ProviderTimeout | Break::Stopped) => {
            500
        }
    }
}

/// The progress in writing a translated answer for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TranslationEnd {
    /// More bytes can follow.
    Open,
    /// The provider's body has been read completely, but the end of the client's answer has not been written.
    Read,
    /// The last bytes have been written.
    Written,
}

/// The translation of one answer.
#[derive(Debug)]
pub(crate) struct AnswerTranslation {
    /// Edits the provider's answer before it is translated; `None` if nothing is edited.
    rewriter: Option<ResponseRewriter>,
    translator: AnswerTranslator,
    request: Arc<RequestTranslation>,
    end: TranslationEnd,
    /// Whether the client gets server-sent events.
    is_sse: bool,
}

impl AnswerTranslation {
    /// Returns the translation of the request.
    pub(crate) fn request(&self) -> &RequestTranslation {
        &self.request
    }

    /// Returns the content type of the client's answer.
    pub(crate) fn content_type(&self) -> &'static str {
        match self.is_sse {
            true => "text/event-stream; charset=utf-8",
            false => "application/json",
        }
    }

    /// Returns the value of the header [`TRANSLATION_HEADER`]. The value also names the kinds of content that the translation has
    /// dropped
    /// from the answer so far.
    pub(crate) fn header(&self) -> String {
        let request = &self.request;
        let mut losses = request.losses.clone();
        for content in self.translator.lost() {
            losses.dropped(format!("answer.{content}"));
        }
        losses.header(request.translation.from, request.translation.to)
    }

    /// Whether the translated answer is complete, or its last bytes have already been written for the client.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == TranslationEnd::Written || self.translator.is_complete()
    }

    /// Whether the client gets a non-streaming answer, so that nothing can be sent before the answer is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.translator.is_whole()
    }

    /// Edits the next bytes of the provider's body, and translates them.
    fn read(&mut self, bytes: &[u8], out: &mut String) {
        match &mut self.rewriter {
            Some(rewriter) => self.translator.push(&rewriter.push(bytes), out),
            None => self.translator.push(bytes, out),
        }
    }

    /// Translates the end of the provider's body.
    fn read_end(&mut self, out: &mut String) {
        if let Some(rewriter) = &mut self.rewriter {
            self.translator.push(&rewriter.finish(), out);
        }
        self.translator.on_end(out);
    }

    /// Reads the provider's complete body, for a client that gets a non-streaming answer. Returns whether the body is a complete
    /// answer.
    pub(crate) fn read_whole(&mut self, pieces: [&[u8]; 2]) -> bool {
        let mut nothing = String::new();
        if self.end == TranslationEnd::Open {
            self.end = TranslationEnd::Read;
            for piece in pieces {
                self.read(piece, &mut nothing);
            }
            self.read_end(&mut nothing);
        }
        self.translator.fault().is_none() && self.translator.is_complete()
    }

    /// Replaces a piece of the provider's body with the translated bytes for the client. `usage` is the billed usage; `None`
    /// until the provider's answer contains everything that the client needs.
    ///
    /// # Errors
    /// Returns the fault if the answer cannot be translated and the client's form of answer has no in-band error.
    pub(crate) fn pass(
        &mut self,
        piece: &mut Option<Bytes>,
        end: bool,
        usage: Option<Usage>,
    ) -> Result<(), AnswerFault> {
        // Nothing is written for a piece of a non-streaming answer.
        let expected = piece.as_ref().filter(|_| !self.is_whole());
        let mut out = String::with_capacity(expected.map_or(0, |bytes| EXPANSION * bytes.len()));
        if self.end == TranslationEnd::Open {
            if let Some(bytes) = piece.as_deref() {
                self.read(bytes, &mut out);
            }
            if end {
                self.read_end(&mut out);
            }
        }
        if self.end != TranslationEnd::Written {
            if let Some(fault) = self.translator.fault() {
                self.end = TranslationEnd::Written;
                self.translator.fail(UNTRANSLATED, &fault.to_string(), &mut out);
                if out.is_empty() {
                    return Err(fault);
                }
            } else if let Some(usage) = usage
                && self.translator.is_complete()
            {
                self.end = TranslationEnd::Written;
                self.translator.finish(&usage, clock::unix_seconds(), &mut out);
            }
        }
        *piece = (!out.is_empty()).then(|| out.into());
        Ok(())
    }

    /// Returns the last bytes of an answer that breaks off: an in-band error, or no bytes if the client already has the end of
    /// its answer. Returns `None` if the client's form of answer has no in-band error.
    pub(crate) fn failure_tail(&mut self, why: Break) -> Option<Vec<u8>> {
        if self.end == TranslationEnd::Written {
            return Some(Vec::new());
        }
        self.end = TranslationEnd::Written;
        let status = failure_status(self.request.translation.from, why);
        let mut out = String::new();
        self.translator.fail(status, why.message(), &mut out);
        (!out.is_empty()).then(|| out.into_bytes())
    }

    /// Returns the last bytes of the translated answer. Called if the connection to the provider broke after the provider had
    /// marked the end of its answer. Returns `None` if content is missing nevertheless.
    pub(crate) fn remaining_bytes(&mut self, usage: &Usage) -> Option<Vec<u8>> {
        let mut out = String::new();
        if self.end != TranslationEnd::Written {
            self.read_end(&mut out);
            if self.translator.fault().is_some() || !self.translator.is_complete() {
                return None;
            }
            self.end = TranslationEnd::Written;
            self.translator.finish(usage, clock::unix_seconds(), &mut out);
        }
        Some(out.into_bytes())
    }

    /// Returns both protocols and the verdict, as metric labels, for each kind of content that the client does not get.
    pub(crate) fn lost_counts(&self) -> impl Iterator<Item = [&'static str; 3]> {
        let Translation { from, to, .. } = &self.request.translation;
        let labels = [from.as_str(), to.as_str(), LossVerdict::Dropped.as_str()];
        std::iter::repeat_n(labels, self.translator.lost().len())
    }

    /// Returns the kinds of content in the answer that the client does not get.
    pub(crate) fn lost(&self) -> &[&'static str] {
        self.translator.lost()
    }
}

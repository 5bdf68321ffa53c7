//! Explains the translation of a request for a provider that does not speak the client's protocol.

use crate::domain::{
    rules::{
        explain::{ExplainError, ExplainRequest},
        provider::Provider,
        raw::RawModel,
    },
    translation::{
        Translation, TranslationTarget,
        losses::{TranslationLoss, TranslationMode, Untranslatable},
        reasoning::ReasoningMaker,
        translate_request,
    },
    wire::{
        Protocol, UpstreamProtocol,
        operation::{Operation, UpstreamOperation},
    },
};

/// The name of the credential that is assumed for the translation of an explained request. No answer was created with a
/// credential of this name, so the translation drops all reasoning that the client sends back.
const CREDENTIAL: &str = "explain";

/// The protocol of a client whose request is to be translated, and the mode of the translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslationQuestion {
    /// The client's protocol.
    pub from: Protocol,
    /// The mode of the translation; `None` for the mode that the model's `translate` states.
    pub mode: Option<TranslationMode>,
}

/// The translation of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExplainedTranslation {
    /// The client's protocol.
    pub from: Protocol,
    /// The provider's protocol.
    pub to: UpstreamProtocol,
    /// The mode of the translation.
    pub mode: TranslationMode,
    /// The members that the translation could not carry over unchanged, in the order in which they were found; empty if the
    /// request is refused.
    pub losses: Vec<TranslationLoss>,
    /// The translated body before the provider's edits; `None` if the request is refused.
    pub body: Option<Vec<u8>>,
    /// The reason why the request is refused; `None` if it is translated.
    pub refused: Option<Untranslatable>,
}

impl TranslationQuestion {
    /// Returns the client's operation, and the provider's operation to which weir translates it.
    ///
    /// # Errors
    /// There is an error in four cases. The provider speaks the client's protocol. The provider has no endpoint for translated
    /// requests. The requested operation does not belong to the client's protocol. The requested operation only counts tokens.
    pub(super) fn operations(
        &self,
        question: &ExplainRequest<'_>,
        provider: &Provider,
    ) -> Result<(Operation, UpstreamOperation), ExplainError> {
        let (from, name) = (self.from.as_str(), &provider.name);
        if provider.protocols().contains(&self.from) {
            return Err(ExplainError(format!(
                "provider `{name}` speaks the protocol {from}, so weir does not translate requests of this protocol: leave out --as"
            )));
        }
        let operation = question.operation.unwrap_or(match self.from {
            Protocol::Messages => Operation::Messages,
            Protocol::Responses => Operation::Responses,
            Protocol::Gemini => Operation::GenerateContent,
        });
        if operation.protocol() != self.from || operation.is_token_count() {
            return Err(ExplainError(format!(
                "weir does not translate the operation {} from {from}: give another --operation, or leave it out",
                operation.as_str()
            )));
        }
        match provider.translation_operation() {
            Some(upstream) => Ok((operation, upstream)),
            None => Err(ExplainError(format!(
                "provider `{name}` has no endpoint that generates answers, so weir cannot translate requests for it"
            ))),
        }
    }

    /// Translates a body for a model of the provider. Nothing is sent, so the result does not depend on a credential.
    ///
    /// # Errors
    /// The model has no `translate` and the question has no mode, or the body is not UTF-8.
    pub(super) fn translate(
        &self,
        (provider, known, upstream_model): (&Provider, &RawModel, &str),
        (operation, upstream): (Operation, UpstreamOperation),
        body: &[u8],
    ) -> Result<ExplainedTranslation, ExplainError> {
        let Some(mode) = self.mode.or(known.translate) else {
            return Err(ExplainError(format!(
                "model `{}` is not translated: set `translate` in its [[model]], or try a mode with --mode",
                known.name
            )));
        };
        let text = std::str::from_utf8(body)
            .map_err(|error| ExplainError(format!("cannot read the request's body: {error}")))?;
        let translation = Translation {
            from: self.from,
            to: upstream.protocol(),
            mode,
            chat: provider.chat.clone(),
        };
        let maker = ReasoningMaker::new(&provider.name, upstream_model, CREDENTIAL);
        let target = TranslationTarget {
            translation: &translation,
            model: upstream_model,
            output_tokens_max: known.output_tokens,
            maker: &maker,
        };
        let mut explained = ExplainedTranslation {
            from: self.from,
            to: translation.to,
            mode,
            losses: Vec::new(),
            body: None,
            refused: None,
        };
        match translate_request(text, operation == Operation::StreamGenerateContent, &target) {
            Ok(translated) => {
                explained.losses = translated.losses.iter().cloned().collect();
                explained.body = Some(translated.body.into_bytes());
            }
            Err(refusal) => explained.refused = Some(refusal),
        }
        Ok(explained)
    }
}

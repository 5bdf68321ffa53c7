//! Reads Gemini answers. Each event of a stream has the same structure as the body of a non-streaming answer.

mod arguments;
mod chunk;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::domain::translation::{
    answer::{
        AnswerEvent, AnswerFault, AnswerLosses, Citation, EVENT_BYTES_MAX, StopCause,
        read::{
            Emit,
            gemini::{
                arguments::CallArguments,
                chunk::{GeminiAnswerPart, GeminiCallPiece, GeminiCandidate, GeminiChunk},
            },
            member_failure,
        },
    },
    reasoning::ReasoningState,
};

/// The maximum number of sources that are remembered. A remembered source is not emitted again if the provider repeats it.
const SOURCES_MAX: usize = 256;

/// The reader of one answer.
#[derive(Debug, Default)]
pub(crate) struct GeminiAnswerReader {
    has_begun: bool,
    has_ended: bool,
    /// The number of calls so far.
    calls: u32,
    /// The signature of a text part. It is passed on with the next call that has no signature of its own.
    signature: Option<String>,
    /// A call whose next piece is in the next part.
    open_call: Option<OpenGeminiCall>,
    /// The URLs of the sources that have been emitted.
    sources: Vec<String>,
}

/// A call that is assembled from its pieces.
#[derive(Debug, Default)]
struct OpenGeminiCall {
    id: String,
    name: String,
    signature: Option<String>,
    arguments: CallArguments,
    bytes: usize,
}

impl GeminiAnswerReader {
    /// Reads an event of a stream, or a non-streaming answer.
    ///
    /// # Errors
    /// The JSON text does not conform to the protocol, or `emit` fails.
    pub(crate) fn on_event(&mut self, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let chunk: GeminiChunk<'_> = serde_json::from_str(data).map_err(|_| AnswerFault::Unreadable)?;
        let candidates = chunk.candidates.as_deref().unwrap_or_default();
        if self.has_ended {
            // Only usage can follow. More content would be lost, because the client's answer is complete.
            return match candidates.iter().any(GeminiCandidate::has_content) {
                true => Err(AnswerFault::Unreadable),
                false => Ok(()),
            };
        }
        if let Some(error) = chunk.error {
            self.has_ended = true;
            return emit(member_failure(error));
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            emit(AnswerEvent::Begin)?;
        }
        for candidate in candidates {
            match candidate.index {
                None | Some(0) if !self.has_ended => self.on_candidate(candidate, emit)?,
                None | Some(0) => {}
                Some(_) => emit(AnswerEvent::Lost("candidate"))?,
            }
        }
        match chunk.is_blocked() && !self.has_ended {
            true => self.stop(StopCause::Filtered, emit),
            false => Ok(()),
        }
    }

    /// Handles the proper end of the stream. Without a finish reason, the answer is incomplete.
    ///
    /// # Errors
    /// `emit` fails.
    pub(crate) fn on_end(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.lose_remaining(emit)
    }

    fn on_candidate(&mut self, candidate: &GeminiCandidate<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        for part in candidate.parts() {
            self.on_part(part, emit)?;
        }
        for source in candidate.sources() {
            self.on_source(source, emit)?;
        }
        match candidate.finish_reason() {
            Some(reason) => self.stop(stop_cause(&reason), emit),
            None => Ok(()),
        }
    }

    fn on_part(&mut self, part: &GeminiAnswerPart<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if let Some(kind) = part.lost_kind() {
            emit(AnswerEvent::Lost(kind))?;
        }
        let signature = part
            .thought_signature
            .as_ref()
            .filter(|signature| !signature.is_empty());
        if let Some(piece) = &part.function_call {
            return self.on_call(piece, signature, emit);
        }
        if signature.is_some() {
            self.lose_signature(emit)?;
            self.signature = signature.cloned();
        }
        let Some(text) = part.text.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        let text = Cow::Borrowed(text);
        emit(match part.thought {
            Some(true) => AnswerEvent::Thought(text),
            Some(false) | None => AnswerEvent::Text(text),
        })
    }

    /// Handles a call, or a piece of one. The pieces of a call are consecutive.
    fn on_call(
        &mut self,
        piece: &GeminiCallPiece<'_>,
        signature: Option<&String>,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        let mut call = self.open_call.take().unwrap_or_default();
        call.add(piece, signature)?;
        if piece.will_continue == Some(true) {
            self.open_call = Some(call);
            return Ok(());
        }
        self.emit_call(call, emit)
    }

    /// Emits a complete call.
    fn emit_call(&mut self, call: OpenGeminiCall, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if call.name.is_empty() {
            return match call.bytes {
                0 => Ok(()),
                _ => emit(AnswerEvent::Lost("call_without_name")),
            };
        }
        if call.signature.is_some() {
            self.lose_signature(emit)?;
        }
        if let Some(signature) = call.signature.or_else(|| self.signature.take()) {
            let signature = Cow::Owned(signature);
            emit(AnswerEvent::Reasoning(ReasoningState::Signature { signature }))?;
        }
        let call_index = self.calls;
        self.calls = call_index.saturating_add(1);
        emit(AnswerEvent::Call {
            call_index,
            id: Cow::Owned(call.id),
            name: Cow::Owned(call.name),
        })?;
        let json = Cow::Owned(call.arguments.into_json());
        emit(AnswerEvent::Arguments { call_index, json })?;
        emit(AnswerEvent::CallEnd { call_index })
    }

    fn on_source(&mut self, source: Option<Citation<'_>>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let Some(source) = source else {
            return emit(AnswerEvent::Lost(AnswerLosses::CITATION));
        };
        if self.sources.iter().any(|url| *url == source.url) {
            return Ok(());
        }
        if self.sources.len() >= SOURCES_MAX {
            return emit(AnswerEvent::Lost(AnswerLosses::CITATION));
        }
        self.sources.push(source.url.clone().into_owned());
        emit(AnswerEvent::Cited(source))
    }

    /// Reports the retained signature, if there is one, as lost: no call has taken it, and it is useless without the part that
    /// contained it.
    fn lose_signature(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self.signature.take() {
            Some(_) => emit(AnswerEvent::Lost("thought_signature")),
            None => Ok(()),
        }
    }

    fn lose_remaining(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.open_call.take().is_some() {
            emit(AnswerEvent::Lost(AnswerLosses::CALL))?;
        }
        self.lose_signature(emit)
    }

    fn stop(&mut self, cause: StopCause, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.has_ended = true;
        if cause == StopCause::End
            && let Some(call) = self.open_call.take()
        {
            self.emit_call(call, emit)?;
        }
        self.lose_remaining(emit)?;
        emit(AnswerEvent::Stop(match cause {
            StopCause::End if self.calls > 0 => StopCause::Calls,
            cause => cause,
        }))
    }
}

impl OpenGeminiCall {
    fn add(&mut self, piece: &GeminiCallPiece<'_>, signature: Option<&String>) -> Result<(), AnswerFault> {
        for (kept, new) in [(&mut self.id, &piece.id), (&mut self.name, &piece.name)] {
            if let (true, Some(new)) = (kept.is_empty(), new) {
                kept.push_str(new);
                self.bytes += new.len();
            }
        }
        if self.signature.is_none() {
            self.signature = signature.cloned();
            self.bytes += signature.map_or(0, String::len);
        }
        if let Some(args) = piece.args {
            self.bytes += args.get().len();
            self.arguments.replace(args.get());
        }
        for argument in piece.partial_args.iter().flatten() {
            self.bytes += self.arguments.add(argument)?;
            if self.bytes > EVENT_BYTES_MAX {
                return Err(AnswerFault::CallsTooLarge);
            }
        }
        match self.bytes > EVENT_BYTES_MAX {
            true => Err(AnswerFault::CallsTooLarge),
            false => Ok(()),
        }
    }
}

/// Returns the cause of a stop with this finish reason. Gemini has no separate finish reason for calls.
fn stop_cause(reason: &str) -> StopCause {
    match reason {
        "STOP" => StopCause::End,
        "MAX_TOKENS" | "CONTINUATION" => StopCause::MaxTokens,
        "PROHIBITED_CONTENT" => StopCause::Refused,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "SPII"
        | "ESCALATION"
        | "MODEL_ARMOR"
        | "PUP_LIMITED_DISABLED" => StopCause::Filtered,
        _ if reason.starts_with("IMAGE_") => StopCause::Filtered,
        _ => StopCause::Malformed,
    }
}

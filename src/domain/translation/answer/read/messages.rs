//! Reads answers of the Messages protocol.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::translation::{
    answer::{
        AnswerEvent, AnswerFault, AnswerLosses, Citation, EVENT_BYTES_MAX, StopCause,
        read::{BROKEN_OFF, Emit, failure},
    },
    reasoning::ReasoningState,
};

/// The maximum number of blocks that are open at the same time.
const OPEN_BLOCKS_MAX: usize = 256;
/// The type of a block that contains a call of the client's tool.
const CALL_BLOCK: &str = "tool_use";

/// The reader of one answer.
#[derive(Debug, Default)]
pub(crate) struct MessagesAnswerReader {
    has_begun: bool,
    has_content: bool,
    has_ended: bool,
    open: Vec<OpenBlock>,
    /// The number of calls so far.
    calls: u32,
    /// The reason why the answer ends. The event that ends the answer arrives later.
    stop_reason: Option<String>,
}

/// A block that is not complete yet.
#[derive(Debug)]
struct OpenBlock {
    index: u64,
    content: OpenContent,
}

/// The part of an open block's content that is needed when the block ends.
#[derive(Debug)]
enum OpenContent {
    /// Nothing is retained: the block is text, or its content is lost.
    Plain,
    /// Thinking. Its text is dropped if it is longer than [`EVENT_BYTES_MAX`].
    Thinking {
        text: String,
        signature: String,
        is_too_long: bool,
    },
    /// A call, with the input from the event that starts the block. This input is used if it has members and no further pieces of
    /// input arrive.
    Call {
        call_index: u32,
        input: String,
        has_arguments: bool,
    },
}

/// An event of a stream.
#[derive(Debug, Deserialize)]
struct MessagesEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    index: Option<u64>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A piece of a block, or information about the answer as a whole.
#[derive(Debug, Deserialize)]
struct MessagesDelta<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
    stop_reason: Option<String>,
    stop_details: Option<MessagesStopDetails>,
}

/// The explanation of the model's refusal.
#[derive(Debug, Deserialize)]
struct MessagesStopDetails {
    explanation: Option<String>,
}

/// A block. Its type determines its members.
#[derive(Debug, Deserialize)]
struct MessagesAnswerBlock<'a> {
    /// The type of the block.
    #[serde(rename = "type")]
    kind: String,
    /// The text.
    text: Option<String>,
    /// The sources of the text.
    #[serde(borrow)]
    citations: Option<&'a RawValue>,
    /// The text of thinking.
    thinking: Option<String>,
    /// The signature of thinking.
    signature: Option<String>,
    /// The content of redacted thinking.
    data: Option<String>,
    /// The arguments of a call, as JSON text.
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    id: Option<String>,
    name: Option<String>,
}

impl MessagesAnswerBlock<'_> {
    /// Returns the beginning of the call that this block contains.
    fn call(&self, call_index: u32) -> AnswerEvent<'_> {
        AnswerEvent::Call {
            call_index,
            id: Cow::Borrowed(self.id.as_deref().unwrap_or_default()),
            name: Cow::Borrowed(self.name.as_deref().unwrap_or_default()),
        }
    }

    /// Returns the kind under which the block's content is reported as lost, because no client's protocol can carry a block of
    /// this type. `None` if such a block has no content.
    fn lost_kind(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            // The block only says that another model continues the answer.
            "fallback" => None,
            "server_tool_use" | "mcp_tool_use" | "mcp_tool_listing" => Some("server_tool"),
            kind if kind.ends_with("_tool_result") => Some("server_tool"),
            "container_upload" => Some("container_upload"),
            "compaction" => Some("compaction"),
            _ => Some("content_block"),
        }
    }
}

/// A non-streaming answer.
#[derive(Debug, Deserialize)]
struct MessagesAnswerBody<'a> {
    #[serde(borrow)]
    content: Option<Vec<MessagesAnswerBlock<'a>>>,
    stop_reason: Option<String>,
    stop_details: Option<MessagesStopDetails>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl MessagesAnswerReader {
    /// Reads an event of a stream. `name` is the value of the `event` field, or empty.
    ///
    /// # Errors
    /// The event does not conform to the protocol, or `emit` fails.
    pub(crate) fn on_event(&mut self, name: &str, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.has_ended || data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: MessagesEvent<'_> = serde_json::from_str(data).map_err(|_| AnswerFault::Unreadable)?;
        let index = event.index.unwrap_or(0);
        match event.kind.as_deref().unwrap_or(name) {
            "message_start" => self.on_start(emit),
            "content_block_start" => self.on_block(index, &parse(event.content_block)?, emit),
            "content_block_delta" => self.on_delta(index, &parse(event.delta)?, emit),
            "content_block_stop" => self.on_block_end(index, emit),
            "message_delta" if event.delta.is_some() => {
                let delta: MessagesDelta<'_> = parse(event.delta)?;
                self.on_answer_delta(delta.stop_reason, delta.stop_details, emit)
            }
            "message_stop" => self.stop(emit),
            "error" => self.fail(data, emit),
            // Another kind of event has no content, but it may be an error in a form of the provider's own.
            _ if event.error.is_some() => self.fail(data, emit),
            _ => Ok(()),
        }
    }

    /// Reads a non-streaming answer.
    ///
    /// # Errors
    /// The body is not an answer of this protocol, or `emit` fails.
    pub(crate) fn on_body(&mut self, body: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let answer: MessagesAnswerBody<'_> = serde_json::from_str(body).map_err(|_| AnswerFault::Unreadable)?;
        let Some(blocks) = &answer.content else {
            return match answer.error {
                Some(_) => self.fail(body, emit),
                None => Err(AnswerFault::Unreadable),
            };
        };
        self.on_start(emit)?;
        for (index, block) in (0..).zip(blocks) {
            self.on_block(index, block, emit)?;
            self.on_block_end(index, emit)?;
        }
        let ends_with_call = blocks.last().is_some_and(|block| block.kind == CALL_BLOCK);
        self.stop_reason = answer.stop_reason;
        if ends_with_call && self.stop_cause().is_some_and(StopCause::is_cut) {
            // The arguments are always an object, which lacks the members that the model had not written yet.
            let call_index = self.calls.saturating_sub(1);
            emit(AnswerEvent::CallCut { call_index })?;
        }
        self.on_answer_delta(None, answer.stop_details, emit)?;
        self.stop(emit)
    }

    fn begin(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match std::mem::replace(&mut self.has_begun, true) {
            true => Ok(()),
            false => emit(AnswerEvent::Begin),
        }
    }

    /// Begins the answer. Fails if the answer already has content: by beginning again, the provider discards this content, but
    /// the client has received it.
    fn on_start(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self.has_content {
            true => Err(AnswerFault::Unreadable),
            false => self.begin(emit),
        }
    }

    fn on_block(
        &mut self,
        index: u64,
        block: &MessagesAnswerBlock<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        self.begin(emit)?;
        self.has_content = true;
        let mut content = OpenContent::Plain;
        match block.kind.as_str() {
            "text" => {
                emit_text(AnswerEvent::Text, block.text.as_deref(), emit)?;
                for event in block.citations.map(citations).unwrap_or_default() {
                    emit(event)?;
                }
            }
            "thinking" => {
                emit_text(AnswerEvent::Thought, block.thinking.as_deref(), emit)?;
                content = OpenContent::Thinking {
                    text: block.thinking.clone().unwrap_or_default(),
                    signature: block.signature.clone().unwrap_or_default(),
                    is_too_long: false,
                };
            }
            "redacted_thinking" => {
                let data = Cow::Borrowed(block.data.as_deref().unwrap_or_default());
                emit(AnswerEvent::Reasoning(ReasoningState::Redacted { data }))?;
            }
            CALL_BLOCK => {
                let call_index = self.calls;
                self.calls = call_index.saturating_add(1);
                emit(block.call(call_index))?;
                content = OpenContent::Call {
                    call_index,
                    input: block.input.map_or("", RawValue::get).to_owned(),
                    has_arguments: false,
                };
            }
            _ => {
                if let Some(kind) = block.lost_kind() {
                    emit(AnswerEvent::Lost(kind))?;
                }
            }
        }
        self.open.retain(|open| open.index != index);
        if self.open.len() >= OPEN_BLOCKS_MAX {
            return Err(AnswerFault::Unreadable);
        }
        self.open.push(OpenBlock { index, content });
        Ok(())
    }

    fn on_delta(&mut self, index: u64, delta: &MessagesDelta<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.begin(emit)?;
        self.has_content = true;
        let open = self.open.iter_mut().find(|open| open.index == index);
        let content = open.map(|open| &mut open.content);
        match delta.kind.as_deref().unwrap_or_default() {
            "text_delta" => emit_text(AnswerEvent::Text, delta.text.as_deref(), emit),
            "thinking_delta" => {
                let more = delta.thinking.as_deref();
                if let Some(OpenContent::Thinking { text, is_too_long, .. }) = content {
                    text.push_str(more.unwrap_or_default());
                    if text.len() > EVENT_BYTES_MAX {
                        *is_too_long = true;
                        text.clear();
                    }
                }
                emit_text(AnswerEvent::Thought, more, emit)
            }
            "signature_delta" => {
                if let Some(OpenContent::Thinking { signature, .. }) = content {
                    *signature = delta.signature.clone().unwrap_or_default();
                }
                Ok(())
            }
            "input_json_delta" => match (content, delta.partial_json.as_deref()) {
                (
                    Some(OpenContent::Call {
                        call_index,
                        has_arguments,
                        ..
                    }),
                    Some(json),
                ) if !json.is_empty() => {
                    *has_arguments = true;
                    let (call_index, json) = (*call_index, Cow::Borrowed(json));
                    emit(AnswerEvent::Arguments { call_index, json })
                }
                _ => Ok(()),
            },
            "citations_delta" => match delta.citation {
                Some(source) => emit(citation(source)),
                None => Ok(()),
            },
            _ => emit(AnswerEvent::Lost("content_delta")),
        }
    }

    fn on_block_end(&mut self, index: u64, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self.open.iter().position(|open| open.index == index) {
            Some(position) => end_content(self.open.remove(position).content, emit),
            None => Ok(()),
        }
    }

    /// Handles an event about the answer as a whole: its stop reason and the explanation of a refusal. Some events of this kind
    /// contain only usage.
    fn on_answer_delta(
        &mut self,
        stop_reason: Option<String>,
        stop_details: Option<MessagesStopDetails>,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        self.stop_reason = stop_reason.or(self.stop_reason.take());
        let explanation = stop_details.and_then(|details| details.explanation);
        emit_text(AnswerEvent::Refusal, explanation.as_deref(), emit)
    }

    fn stop(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.begin(emit)?;
        self.has_ended = true;
        for block in self.open.drain(..) {
            end_content(block.content, emit)?;
        }
        emit(match self.stop_cause() {
            Some(cause) => AnswerEvent::Stop(cause),
            None => AnswerEvent::Failed {
                status: 502,
                message: Cow::Borrowed(BROKEN_OFF),
            },
        })
    }

    /// Returns the cause of the stop; `None` if the answer has failed.
    fn stop_cause(&self) -> Option<StopCause> {
        Some(match self.stop_reason.as_deref().unwrap_or_default() {
            "max_tokens" => StopCause::MaxTokens,
            "stop_sequence" => StopCause::Sequence,
            "refusal" => StopCause::Refused,
            "model_context_window_exceeded" => StopCause::ContextFull,
            // Stop reasons of other providers that use the protocol.
            "sensitive" => StopCause::Filtered,
            "network_error" => return None,
            _ if self.calls > 0 => StopCause::Calls,
            _ => StopCause::End,
        })
    }

    /// Reports the error in an event or body.
    fn fail(&mut self, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.has_ended = true;
        emit(failure(data))
    }
}

/// Whether the JSON text of an object has members. If it has none, the arguments follow in pieces, or the call has no arguments.
fn has_members(json: &str) -> bool {
    json.bytes()
        .any(|byte| !matches!(byte, b'{' | b'}') && !byte.is_ascii_whitespace())
}

fn parse<'a, T: Deserialize<'a>>(json: Option<&'a RawValue>) -> Result<T, AnswerFault> {
    let read = json.and_then(|json| serde_json::from_str(json.get()).ok());
    read.ok_or(AnswerFault::Unreadable)
}

/// Emits text, unless it is missing or empty.
fn emit_text<'t>(
    event: impl FnOnce(Cow<'t, str>) -> AnswerEvent<'t>,
    text: Option<&'t str>,
    emit: &mut Emit<'_>,
) -> Result<(), AnswerFault> {
    match text {
        None | Some("") => Ok(()),
        Some(text) => emit(event(Cow::Borrowed(text))),
    }
}

/// Emits the events for the end of a block.
fn end_content(content: OpenContent, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
    match content {
        OpenContent::Plain => Ok(()),
        OpenContent::Thinking { is_too_long: true, .. } => emit(AnswerEvent::Lost(AnswerLosses::REASONING_STATE)),
        OpenContent::Thinking { text, signature, .. } if text.is_empty() && signature.is_empty() => Ok(()),
        OpenContent::Thinking { text, signature, .. } => {
            let (text, signature) = (Cow::Owned(text), Cow::Owned(signature));
            emit(AnswerEvent::Reasoning(ReasoningState::Thinking { text, signature }))
        }
        OpenContent::Call {
            call_index,
            input,
            has_arguments,
        } => {
            if !has_arguments && has_members(&input) {
                let json = Cow::Owned(input);
                emit(AnswerEvent::Arguments { call_index, json })?;
            }
            emit(AnswerEvent::CallEnd { call_index })
        }
    }
}

/// A source, in the form that citations use.
#[derive(Debug, Deserialize)]
struct MessagesSource {
    url: Option<String>,
    title: Option<String>,
    cited_text: Option<String>,
}

impl MessagesSource {
    /// Converts the source to an event. Only sources on the web have a URL, which other protocols require.
    fn into_event(self) -> AnswerEvent<'static> {
        match self.url.filter(|url| !url.is_empty()) {
            Some(url) => AnswerEvent::Cited(Citation {
                url: Cow::Owned(url),
                title: self.title.map(Cow::Owned),
                quote: self.cited_text.map(Cow::Owned),
            }),
            None => AnswerEvent::Lost(AnswerLosses::CITATION),
        }
    }
}

/// Returns the source that a citation names.
fn citation(source: &RawValue) -> AnswerEvent<'static> {
    match serde_json::from_str::<MessagesSource>(source.get()) {
        Ok(source) => source.into_event(),
        Err(_) => AnswerEvent::Lost(AnswerLosses::CITATION),
    }
}

/// Returns the sources that the citations of a text block name.
fn citations(sources: &RawValue) -> Vec<AnswerEvent<'static>> {
    match serde_json::from_str::<Vec<MessagesSource>>(sources.get()) {
        Ok(sources) => sources.into_iter().map(MessagesSource::into_event).collect(),
        Err(_) => vec![AnswerEvent::Lost(AnswerLosses::CITATION)],
    }
}

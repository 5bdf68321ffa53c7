//! One item of a Responses answer. Later events repeat content. The item records how much has been passed on, so that only the
//! rest is passed on.

use std::borrow::Cow;

use crate::domain::{
    translation::{
        answer::{
            AnswerEvent, AnswerFault, AnswerLosses,
            read::{
                Emit,
                responses::event::{PartKind, ResponsesItem, ResponsesPart, citation},
            },
        },
        json_out::push_object,
        reasoning::ReasoningState,
    },
    wire::json_scan::{JsonEnd, JsonEndProgress},
};

/// The maximum number of parts of an item.
const PARTS_MAX: usize = 4_096;
/// The separator between two parts of reasoning.
const PART_BREAK: &str = "\n\n";

/// The state that all items of an answer share.
#[derive(Debug, Default)]
pub(super) struct ItemContext {
    /// The number of calls so far.
    pub(super) calls: u32,
    /// Whether the model has declined.
    pub(super) has_refused: bool,
}

/// An item of an answer.
#[derive(Debug)]
pub(super) struct AnswerItem {
    number: u64,
    is_done: bool,
    parts: Vec<PassedPart>,
    call: Option<PassedCall>,
    /// The input of a custom tool so far.
    input: String,
    /// The number of sources that have been passed on.
    citations: usize,
}

/// A part of an item, and how many bytes of its text have been passed on.
#[derive(Debug)]
struct PassedPart {
    kind: PartKind,
    number: u64,
    bytes: usize,
}

/// The call in an item, and how many bytes of its arguments have been passed on.
#[derive(Debug)]
struct PassedCall {
    call_index: u32,
    bytes: usize,
    arguments: JsonEnd,
    is_complete: bool,
}

impl PartKind {
    const fn is_thought(self) -> bool {
        match self {
            Self::Summary | Self::Reasoning => true,
            Self::Text | Self::Refusal => false,
        }
    }

    fn event(self, text: Cow<'_, str>) -> AnswerEvent<'_> {
        match self {
            Self::Text => AnswerEvent::Text(text),
            Self::Refusal => AnswerEvent::Refusal(text),
            Self::Summary | Self::Reasoning => AnswerEvent::Thought(text),
        }
    }
}

impl AnswerItem {
    /// Creates an item with this index. No content of it has been passed on.
    pub(super) const fn new(number: u64) -> Self {
        Self {
            number,
            is_done: false,
            parts: Vec::new(),
            call: None,
            input: String::new(),
            citations: 0,
        }
    }

    /// Returns the index of the item in the answer.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the provider has completed the item.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Begins the item. Emits only the beginning of a call, because a call's name is the only content that is final at this
    /// point.
    ///
    /// # Errors
    /// `emit` fails.
    pub(super) fn begin(
        &mut self,
        item: &ResponsesItem<'_>,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        match item.kind.as_str() {
            "function_call" => self.begin_call(item, context, emit),
            _ => Ok(()),
        }
    }

    /// Emits the call in the item, if the call's name is known and the call has not been emitted yet.
    fn begin_call(
        &mut self,
        item: &ResponsesItem<'_>,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        if self.call.is_some() || item.name().is_empty() {
            return Ok(());
        }
        let call_index = context.calls;
        context.calls = call_index.saturating_add(1);
        self.call = Some(PassedCall {
            call_index,
            bytes: 0,
            arguments: JsonEnd::new(),
            is_complete: false,
        });
        emit(AnswerEvent::Call {
            call_index,
            id: Cow::Borrowed(item.call_id()),
            name: Cow::Borrowed(item.name()),
        })
    }

    /// Passes on a piece of a part's text.
    ///
    /// # Errors
    /// The item has too many parts, or `emit` fails.
    pub(super) fn add_text(
        &mut self,
        kind: PartKind,
        number: u64,
        text: &str,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        if text.is_empty() {
            return Ok(());
        }
        let position = self
            .parts
            .iter()
            .position(|part| part.kind == kind && part.number == number);
        match position.and_then(|position| self.parts.get_mut(position)) {
            Some(part) => part.bytes += text.len(),
            None => self.begin_part(kind, number, text.len(), emit)?,
        }
        context.has_refused |= kind == PartKind::Refusal;
        emit(kind.event(Cow::Borrowed(text)))
    }

    /// Adds a part. The calling function then passes on `bytes` bytes of the part's text.
    fn begin_part(
        &mut self,
        kind: PartKind,
        number: u64,
        bytes: usize,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        if self.parts.len() >= PARTS_MAX {
            return Err(AnswerFault::Unreadable);
        }
        if kind.is_thought() && self.passed_bytes(true) > 0 {
            emit(AnswerEvent::Thought(Cow::Borrowed(PART_BREAK)))?;
        }
        self.parts.push(PassedPart { kind, number, bytes });
        Ok(())
    }

    /// Passes on those bytes of a part's text that no delta contained.
    ///
    /// # Errors
    /// See [`AnswerItem::add_text`].
    pub(super) fn complete_text(
        &mut self,
        kind: PartKind,
        number: u64,
        whole: &str,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        let part = self
            .parts
            .iter()
            .find(|part| part.kind == kind && part.number == number);
        let passed = part.map_or(0, |part| part.bytes);
        self.add_text(kind, number, whole.get(passed..).unwrap_or_default(), context, emit)
    }

    /// Returns the number of bytes of text that have been passed on. Counts only reasoning if `of_thoughts` is true, and only
    /// text that is not reasoning if it is false.
    fn passed_bytes(&self, of_thoughts: bool) -> usize {
        let parts = self.parts.iter().filter(|part| part.kind.is_thought() == of_thoughts);
        parts.map(|part| part.bytes).sum()
    }

    /// Counts a source that is passed on.
    pub(super) fn count_citation(&mut self) {
        self.citations += 1;
    }

    /// Passes on a piece of a call's arguments. If the call has not begun, does nothing; all its arguments are passed on when it
    /// is complete.
    ///
    /// # Errors
    /// `emit` fails.
    pub(super) fn add_arguments(&mut self, piece: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let Some(call) = self.call.as_mut().filter(|call| !call.is_complete && !piece.is_empty()) else {
            return Ok(());
        };
        call.bytes += piece.len();
        call.is_complete = matches!(call.arguments.push(piece.as_bytes()), JsonEndProgress::CompleteAt(_));
        let (call_index, json) = (call.call_index, Cow::Borrowed(piece));
        emit(AnswerEvent::Arguments { call_index, json })
    }

    /// Passes on those bytes of a call's arguments that no delta contained.
    ///
    /// # Errors
    /// `emit` fails.
    pub(super) fn complete_arguments(&mut self, whole: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let passed = self.call.as_ref().map_or(0, |call| call.bytes);
        self.add_arguments(whole.get(passed..).unwrap_or_default(), emit)
    }

    /// Retains a piece of the input of a custom tool.
    pub(super) fn add_input(&mut self, piece: &str) {
        self.input.push_str(piece);
    }

    /// Completes the item: passes on the content that its deltas did not contain. `json` is the item's unchanged JSON text.
    ///
    /// # Errors
    /// The item does not conform to the protocol, or `emit` fails.
    pub(super) fn complete(
        &mut self,
        item: &ResponsesItem<'_>,
        json: &str,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        match item.kind.as_str() {
            "message" => self.complete_message(&item.content()?, context, emit),
            "reasoning" => {
                if self.passed_bytes(true) == 0 {
                    let summary = item.summary().unwrap_or_default();
                    self.complete_parts(PartKind::Summary, &summary, context, emit)?;
                    let content = item.content().unwrap_or_default();
                    self.complete_parts(PartKind::Reasoning, &content, context, emit)?;
                }
                let json = Cow::Borrowed(json);
                emit(AnswerEvent::Reasoning(ReasoningState::Item { json }))
            }
            "function_call" => self.complete_call(item, context, emit),
            "custom_tool_call" => self.complete_custom_call(item, context, emit),
            kind => emit(AnswerEvent::Lost(lost_kind(kind))),
        }
    }

    fn complete_message(
        &mut self,
        parts: &[ResponsesPart<'_>],
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        let bytes: usize = parts.iter().filter_map(ResponsesPart::text).map(str::len).sum();
        // The totals are compared, because some hosts do not state the index of a part in its deltas.
        if bytes > self.passed_bytes(false) {
            for (number, part) in (0..).zip(parts) {
                match (part.kind(), part.text()) {
                    (Some(kind), Some(text)) => self.complete_text(kind, number, text, context, emit)?,
                    (Some(_), None) => {}
                    (None, _) => emit(AnswerEvent::Lost("content_part"))?,
                }
            }
        }
        let annotations = parts.iter().flat_map(ResponsesPart::annotations);
        for annotation in annotations.skip(self.citations) {
            emit(citation(annotation))?;
        }
        Ok(())
    }

    fn complete_parts(
        &mut self,
        kind: PartKind,
        parts: &[ResponsesPart<'_>],
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        for (number, part) in (0..).zip(parts) {
            self.complete_text(kind, number, part.text().unwrap_or_default(), context, emit)?;
        }
        Ok(())
    }

    fn complete_call(
        &mut self,
        item: &ResponsesItem<'_>,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        self.begin_call(item, context, emit)?;
        self.complete_arguments(&item.arguments()?, emit)?;
        match &self.call {
            None => emit(AnswerEvent::Lost("call_without_name")),
            Some(call) if item.is_incomplete() => emit(AnswerEvent::CallCut {
                call_index: call.call_index,
            }),
            Some(call) => {
                let call_index = call.call_index;
                if call.bytes == 0 {
                    self.add_arguments("{}", emit)?;
                }
                emit(AnswerEvent::CallEnd { call_index })
            }
        }
    }

    /// Completes a call of a custom tool. Its input is a string, which becomes the member `input` of the arguments, as in every
    /// translation of such a call.
    fn complete_custom_call(
        &mut self,
        item: &ResponsesItem<'_>,
        context: &mut ItemContext,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        let input = item.input()?;
        let kept = std::mem::take(&mut self.input);
        if item.is_incomplete() {
            return emit(AnswerEvent::Lost(AnswerLosses::CALL));
        }
        self.begin_call(item, context, emit)?;
        let Some(call_index) = self.call.as_ref().map(|call| call.call_index) else {
            return emit(AnswerEvent::Lost("call_without_name"));
        };
        let input = match input.is_empty() {
            true => kept.as_str(),
            false => &*input,
        };
        let mut arguments = String::new();
        push_object(&mut arguments, |object| object.text("input", input));
        self.add_arguments(&arguments, emit)?;
        emit(AnswerEvent::CallEnd { call_index })
    }
}

/// Returns the kind under which an item is reported as lost. `kind` is the item's type, which no client's protocol can carry.
fn lost_kind(kind: &str) -> &'static str {
    match kind {
        "compaction" => "compaction",
        _ if kind.ends_with("_call") || kind.ends_with("_output") || kind.starts_with("mcp_") => "server_tool",
        _ => "output_item",
    }
}

//! Writes Gemini answers. An answer consists of parts. A stream or an array contains them in chunks, and a non-streaming answer
//! contains all of them in one object.

use std::{borrow::Cow, fmt::Write};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::domain::{
    translation::{
        answer::{
            AnswerEvent, AnswerFault, AnswerLosses, StopCause, WAITING_BYTES_MAX,
            write::{AnswerForm, AnswerFrame},
        },
        call_ids::client_id,
        conversation::ToolCall,
        json_out::{JsonObjectWriter, push_object},
        reasoning::ReasoningState,
    },
    wire::{
        protocol::gemini::{error_body, error_status},
        usage::Usage,
    },
};

/// The writer of one Gemini answer.
#[derive(Debug)]
pub(crate) struct GeminiAnswerWriter {
    frame: AnswerFrame,
    /// Whether a chunk has been written.
    has_begun: bool,
    /// Whether the last chunk, or the non-streaming answer, has been written.
    has_ended: bool,
    /// The call whose arguments are arriving.
    call: Option<CollectedCall>,
    /// The thought signature for the next call or text.
    held: Option<String>,
    /// The last text of a non-streaming answer, which the next piece may continue.
    text: Option<PartText>,
    /// The complete parts of a non-streaming answer, as JSON text.
    parts: String,
    has_refused: bool,
    stop: Option<StopCause>,
    losses: AnswerLosses,
}

/// A call whose pieces are collected, because the client gets it in one part.
#[derive(Debug)]
struct CollectedCall {
    call_index: u32,
    call: ToolCall<'static>,
    signature: Option<String>,
}

/// The text of a part, to which more can be appended.
#[derive(Debug)]
struct PartText {
    text: String,
    is_thought: bool,
    signature: Option<String>,
}

impl GeminiAnswerWriter {
    /// Creates a writer for an answer that has not begun.
    pub(crate) fn new(frame: AnswerFrame) -> Self {
        Self {
            frame,
            has_begun: false,
            has_ended: false,
            call: None,
            held: None,
            text: None,
            parts: String::new(),
            has_refused: false,
            stop: None,
            losses: AnswerLosses::default(),
        }
    }

    /// Returns the kinds of content that the client does not get.
    pub(crate) fn losses(&self) -> &AnswerLosses {
        &self.losses
    }

    fn is_stream(&self) -> bool {
        self.frame.form.is_stream()
    }

    /// Writes an event.
    ///
    /// # Errors
    /// A call is too large, or a non-streaming answer has failed.
    pub(crate) fn on_event(&mut self, event: AnswerEvent<'_>, out: &mut String) -> Result<(), AnswerFault> {
        if self.has_ended {
            return Ok(());
        }
        match event {
            AnswerEvent::Text(text) => self.on_text(&text, false, out),
            AnswerEvent::Thought(text) => {
                if self.frame.shows_reasoning {
                    self.on_text(&text, true, out);
                }
            }
            AnswerEvent::Refusal(text) => {
                self.has_refused = true;
                self.on_text(&text, false, out);
            }
            AnswerEvent::Reasoning(state) => self.on_reasoning(&state, out),
            AnswerEvent::Call { call_index, id, name } => self.on_call(call_index, &id, &name, out),
            AnswerEvent::Arguments { call_index, json } => self.on_arguments(call_index, &json)?,
            AnswerEvent::Stop(cause) => {
                self.end_call(out);
                self.stop = self.stop.or(Some(cause));
            }
            AnswerEvent::Failed { status, message } => {
                if !self.is_stream() {
                    return Err(AnswerFault::Unreadable);
                }
                self.fail(status, &message, out);
            }
            AnswerEvent::CallCut { call_index } => self.drop_call(call_index),
            AnswerEvent::Cited(_) => self.losses.add(AnswerLosses::CITATION),
            AnswerEvent::Lost(kind) => self.losses.add(kind),
            AnswerEvent::Begin | AnswerEvent::CallEnd { .. } => {}
        }
        Ok(())
    }

    /// Writes the last chunk, or the non-streaming answer.
    pub(crate) fn finish(&mut self, usage: &Usage, out: &mut String) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.end_call(out);
        self.end_text();
        let signature = self.held.take();
        if signature.is_some() || self.parts.is_empty() {
            self.keep_part(&text_part("", false, signature.as_deref()));
        }
        let parts = std::mem::take(&mut self.parts);
        let reason = self.finish_reason();
        self.push_answer(&parts, Some((reason, usage)), out);
        self.end_array(out);
    }

    /// Writes the error that ends a stream or an array. An incomplete call is omitted.
    pub(crate) fn fail(&mut self, status: u16, message: &str, out: &mut String) {
        if std::mem::replace(&mut self.has_ended, true) || !self.is_stream() {
            return;
        }
        let error = error_body(status, error_status(status), message).to_string();
        self.push_frame(&error, out);
        self.end_array(out);
    }

    fn on_text(&mut self, text: &str, is_thought: bool, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.end_call(out);
        let signature = match is_thought {
            true => None,
            false => self.held.take(),
        };
        if self.is_stream() {
            self.push_answer(&text_part(text, is_thought, signature.as_deref()), None, out);
            return;
        }
        match &mut self.text {
            Some(last) if last.is_thought == is_thought && signature.is_none() => last.text.push_str(text),
            _ => {
                self.end_text();
                self.text = Some(PartText {
                    text: text.to_owned(),
                    is_thought,
                    signature,
                });
            }
        }
    }

    /// Retains the state as the signature of the next part. A part has at most one signature, so a state that is followed by
    /// another state gets an empty part of its own.
    fn on_reasoning(&mut self, state: &ReasoningState<'_>, out: &mut String) {
        self.end_call(out);
        let Some(carrier) = state.wrap(&self.frame.maker, "") else {
            self.losses.add(AnswerLosses::REASONING_STATE);
            return;
        };
        // Clients decode signatures as base64, so the carrier is encoded once more. The encoded carrier never contains `+` or
        // `/`, so it is the same in both alphabets of base64.
        if let Some(earlier) = self.held.replace(STANDARD.encode(carrier)) {
            self.add_part(&text_part("", false, Some(&earlier)), out);
        }
    }

    fn on_call(&mut self, call_index: u32, id: &str, name: &str, out: &mut String) {
        self.end_call(out);
        let id = match id.is_empty() {
            true => Cow::Borrowed(""),
            false => Cow::Owned(client_id(id).into_owned()),
        };
        let tool = self.frame.names.called_tool(name);
        let name = tool.map_or(name, |tool| tool.name.as_str()).to_owned();
        self.call = Some(CollectedCall {
            call_index,
            call: ToolCall {
                id,
                name: Cow::Owned(name),
                arguments: Cow::Borrowed(""),
            },
            signature: self.held.take(),
        });
    }

    fn on_arguments(&mut self, call_index: u32, json: &str) -> Result<(), AnswerFault> {
        let Some(CollectedCall {
            call_index: open, call, ..
        }) = &mut self.call
        else {
            return Ok(());
        };
        if *open != call_index {
            return Ok(());
        }
        if call.arguments.len() + json.len() > WAITING_BYTES_MAX {
            return Err(AnswerFault::CallsTooLarge);
        }
        call.arguments.to_mut().push_str(json);
        Ok(())
    }

    /// Drops the collected call, because a client could run it without the rest of its arguments.
    fn drop_call(&mut self, call_index: u32) {
        if let Some(cut) = self.call.take_if(|call| call.call_index == call_index) {
            self.held = cut.signature;
            self.losses.add(AnswerLosses::CALL);
        }
    }

    /// Writes the collected call, because other content has begun.
    fn end_call(&mut self, out: &mut String) {
        let Some(CollectedCall { call, signature, .. }) = self.call.take() else {
            return;
        };
        let mut part = String::new();
        push_object(&mut part, |object| {
            object.object("functionCall", |function| {
                if !call.id.is_empty() {
                    function.text("id", &call.id);
                }
                function.text("name", &call.name);
                function.raw("args", &call.object_arguments().0);
            });
            if let Some(signature) = &signature {
                object.text("thoughtSignature", signature);
            }
        });
        self.add_part(&part, out);
    }

    /// Adds the last text of a non-streaming answer to its parts.
    fn end_text(&mut self) {
        if let Some(last) = self.text.take() {
            self.keep_part(&text_part(&last.text, last.is_thought, last.signature.as_deref()));
        }
    }

    /// Adds a complete part: as a chunk of a stream, or as one more part of the non-streaming answer.
    fn add_part(&mut self, part: &str, out: &mut String) {
        if self.is_stream() {
            self.push_answer(part, None, out);
        } else {
            self.end_text();
            self.keep_part(part);
        }
    }

    fn keep_part(&mut self, part: &str) {
        if !self.parts.is_empty() {
            self.parts.push(',');
        }
        self.parts.push_str(part);
    }

    /// Writes a chunk, or the non-streaming answer, with these parts. The last chunk also contains the finish reason and the
    /// usage.
    fn push_answer(&mut self, parts: &str, end: Option<(&'static str, &Usage)>, out: &mut String) {
        let mut json = String::with_capacity(parts.len() + 256);
        push_object(&mut json, |answer| {
            answer.array("candidates", |candidates| {
                candidates.object(|candidate| {
                    candidate.object("content", |content| {
                        content.array("parts", |list| list.raw(parts));
                        content.text("role", "model");
                    });
                    if let Some((reason, _)) = end {
                        candidate.text("finishReason", reason);
                    }
                    candidate.number("index", 0_u32);
                });
            });
            if let Some((_, usage)) = end {
                answer.object("usageMetadata", |counts| write_usage(counts, usage));
            }
            answer.text("modelVersion", &self.frame.model);
            answer.text("responseId", &self.frame.id);
        });
        self.push_frame(&json, out);
    }

    /// Writes the JSON text as the data of an event, as an element of the array, or as the body.
    fn push_frame(&mut self, json: &str, out: &mut String) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        match self.frame.form {
            AnswerForm::Stream => {
                out.push_str("data: ");
                push_line(out, json);
                out.push_str("\r\n\r\n");
            }
            AnswerForm::Array => {
                out.push_str(if is_first { "[" } else { "\r\n," });
                push_line(out, json);
            }
            AnswerForm::Whole => push_line(out, json),
        }
    }

    fn end_array(&self, out: &mut String) {
        match self.frame.form {
            AnswerForm::Array => out.push(']'),
            AnswerForm::Stream | AnswerForm::Whole => {}
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self.stop.unwrap_or(StopCause::End) {
            StopCause::End | StopCause::Sequence | StopCause::Calls => match self.has_refused {
                true => "SAFETY",
                false => "STOP",
            },
            StopCause::MaxTokens | StopCause::ContextFull => "MAX_TOKENS",
            StopCause::Refused | StopCause::Filtered => "SAFETY",
            StopCause::Malformed => "MALFORMED_FUNCTION_CALL",
        }
    }
}

/// Returns a part with this text, as JSON text.
fn text_part(text: &str, is_thought: bool, signature: Option<&str>) -> String {
    let mut part = String::with_capacity(text.len() + 32);
    push_object(&mut part, |object| {
        object.text("text", text);
        if is_thought {
            object.flag("thought", true);
        }
        if let Some(signature) = signature {
            object.text("thoughtSignature", signature);
        }
    });
    part
}

/// Appends valid JSON text as one line. Some clients also split lines at characters that are not line breaks in the protocol, so
/// these characters are escaped. They occur only in strings. Line breaks between tokens, as in a model's arguments, become
/// spaces.
fn push_line(out: &mut String, json: &str) {
    if !json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        out.push_str(json);
        return;
    }
    for character in json.chars() {
        match character {
            '\n' | '\r' => out.push(' '),
            '\u{85}' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
}

/// Writes the token counts. The prompt's count includes cached tokens. Thoughts and the prompts of tools are counted separately.
fn write_usage(counts: &mut JsonObjectWriter<'_>, usage: &Usage) {
    let (input, output) = (usage.input_total(), usage.output_total());
    let optional = [
        ("cachedContentTokenCount", usage.cache_read_total()),
        ("toolUsePromptTokenCount", usage.tool_input),
        ("thoughtsTokenCount", usage.output_reasoning),
    ];
    counts.number("promptTokenCount", input.saturating_sub(usage.tool_input));
    counts.number("candidatesTokenCount", output.saturating_sub(usage.output_reasoning));
    for (name, count) in optional {
        if count > 0 {
            counts.number(name, count);
        }
    }
    counts.number("totalTokenCount", input.saturating_add(output));
}

#[cfg(test)]
mod tests;

//! Makes overlapping tool calls sequential.

use std::{borrow::Cow, collections::VecDeque};

use crate::domain::{
    translation::answer::{AnswerEvent, AnswerFault, WAITING_BYTES_MAX},
    wire::json_scan::{JsonEnd, JsonEndProgress},
};

/// A queue that passes events on without interrupting the arguments of a call. While a call is incomplete, the queue retains all
/// other events, at most [`WAITING_BYTES_MAX`] bytes in total. If the answer ends within a call, [`AnswerEvent::CallCut`] follows
/// the call.
#[derive(Debug, Default)]
pub(crate) struct CallOrder {
    open: Option<OpenCall>,
    waiting: VecDeque<WaitingEvent>,
    waiting_bytes: usize,
}

/// The call that is being passed on.
#[derive(Debug)]
struct OpenCall {
    call_index: u32,
    arguments: JsonEnd,
    /// Whether the provider has ended the call although its arguments are not complete JSON. If further content follows, the call
    /// counts as complete. If the answer ends instead, the call may have been cut off.
    has_ended: bool,
}

/// A waiting event.
#[derive(Debug)]
enum WaitingEvent {
    /// A call with its arguments so far, and whether the provider has ended it.
    Call {
        call_index: u32,
        id: String,
        name: String,
        arguments: String,
        ended: bool,
    },
    /// Any other event.
    Other(AnswerEvent<'static>),
}

impl CallOrder {
    /// Passes an event on, or retains it until the open call is complete.
    ///
    /// # Errors
    /// The waiting events exceed [`WAITING_BYTES_MAX`].
    pub(crate) fn push(
        &mut self,
        event: AnswerEvent<'_>,
        emit: &mut dyn FnMut(AnswerEvent<'_>) -> Result<(), AnswerFault>,
    ) -> Result<(), AnswerFault> {
        match (&mut self.open, event) {
            // The end of the answer ends every call.
            (_, AnswerEvent::Stop(cause)) => {
                self.release_all(cause.is_cut(), emit)?;
                emit(AnswerEvent::Stop(cause))
            }
            // The waiting events are dropped: emitting them would end the open call, which is incomplete.
            (_, failed @ AnswerEvent::Failed { .. }) => emit(failed),
            (None, AnswerEvent::Call { call_index, id, name }) => {
                self.open = Some(OpenCall::new(call_index));
                emit(AnswerEvent::Call { call_index, id, name })
            }
            (None, AnswerEvent::CallEnd { .. }) => Ok(()),
            (None, other) => emit(other),
            (Some(open), AnswerEvent::Arguments { call_index, json }) if call_index == open.call_index => {
                // Some hosts send the arguments again after they are complete.
                let end = open.end_with(&json);
                let json = match end.and_then(|end| json.get(..end)) {
                    Some(last) => Cow::Owned(last.to_owned()),
                    None => json,
                };
                emit(AnswerEvent::Arguments { call_index, json })?;
                if end.is_some() { self.release(emit) } else { Ok(()) }
            }
            (Some(open), AnswerEvent::CallEnd { call_index }) if call_index == open.call_index => {
                open.has_ended = true;
                Ok(())
            }
            (Some(open), AnswerEvent::CallCut { call_index }) if call_index == open.call_index => {
                emit(AnswerEvent::CallCut { call_index })?;
                self.release(emit)
            }
            (Some(open), content) if open.has_ended && is_more_content(&content) => {
                self.release(emit)?;
                self.push(content, emit)
            }
            (Some(_), other) => self.wait(other),
        }
    }

    /// Adds an event to the waiting ones.
    fn wait(&mut self, event: AnswerEvent<'_>) -> Result<(), AnswerFault> {
        self.waiting_bytes += event.text_bytes();
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return Err(AnswerFault::CallsTooLarge);
        }
        match event {
            AnswerEvent::Call { call_index, id, name } => self.waiting.push_back(WaitingEvent::Call {
                call_index,
                id: id.into_owned(),
                name: name.into_owned(),
                arguments: String::new(),
                ended: false,
            }),
            AnswerEvent::Arguments { call_index, json } => {
                if let Some((arguments, _)) = self.waiting_call(call_index) {
                    arguments.push_str(&json);
                }
            }
            AnswerEvent::CallEnd { call_index } => {
                if let Some((_, ended)) = self.waiting_call(call_index) {
                    *ended = true;
                }
            }
            other => self.waiting.push_back(WaitingEvent::Other(other.into_owned())),
        }
        Ok(())
    }

    fn waiting_call(&mut self, wanted: u32) -> Option<(&mut String, &mut bool)> {
        self.waiting.iter_mut().find_map(|event| match event {
            WaitingEvent::Call {
                call_index,
                arguments,
                ended,
                ..
            } if *call_index == wanted => Some((arguments, ended)),
            _ => None,
        })
    }

    /// Closes the open call and passes on the waiting events, up to the next incomplete call.
    fn release(&mut self, emit: &mut dyn FnMut(AnswerEvent<'_>) -> Result<(), AnswerFault>) -> Result<(), AnswerFault> {
        self.open = None;
        while let Some(event) = self.waiting.pop_front() {
            match event {
                WaitingEvent::Other(other) => {
                    self.waiting_bytes = self.waiting_bytes.saturating_sub(other.text_bytes());
                    emit(other)?;
                }
                WaitingEvent::Call {
                    call_index,
                    id,
                    name,
                    mut arguments,
                    ended,
                } => {
                    self.waiting_bytes = self
                        .waiting_bytes
                        .saturating_sub(id.len() + name.len() + arguments.len());
                    let mut open = OpenCall::new(call_index);
                    let end = open.end_with(&arguments);
                    arguments.truncate(end.unwrap_or(arguments.len()));
                    emit(AnswerEvent::Call {
                        call_index,
                        id: id.into(),
                        name: name.into(),
                    })?;
                    if !arguments.is_empty() {
                        emit(AnswerEvent::Arguments {
                            call_index,
                            json: arguments.into(),
                        })?;
                    }
                    let is_complete = end.is_some() || (ended && !self.waiting.is_empty());
                    if !is_complete {
                        open.has_ended = ended;
                        self.open = Some(open);
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes on all waiting events, because the answer has ended. `is_cut` says whether the end has cut off incomplete calls.
    fn release_all(
        &mut self,
        is_cut: bool,
        emit: &mut dyn FnMut(AnswerEvent<'_>) -> Result<(), AnswerFault>,
    ) -> Result<(), AnswerFault> {
        loop {
            if let Some(open) = self.open.take()
                && is_cut
            {
                emit(AnswerEvent::CallCut {
                    call_index: open.call_index,
                })?;
            }
            self.release(emit)?;
            if self.open.is_none() {
                return Ok(());
            }
        }
    }
}

/// Whether an event shows that the model has continued after a call. False for a refusal, because a refusal is part of the
/// answer's end.
fn is_more_content(event: &AnswerEvent<'_>) -> bool {
    match event {
        AnswerEvent::Text(_)
        | AnswerEvent::Thought(_)
        | AnswerEvent::Reasoning(_)
        | AnswerEvent::Call { .. }
        | AnswerEvent::Arguments { .. }
        | AnswerEvent::CallEnd { .. }
        | AnswerEvent::CallCut { .. }
        | AnswerEvent::Cited(_) => true,
        AnswerEvent::Begin
        | AnswerEvent::Refusal(_)
        | AnswerEvent::Stop(_)
        | AnswerEvent::Failed { .. }
        | AnswerEvent::Lost(_) => false,
    }
}

impl OpenCall {
    fn new(call_index: u32) -> Self {
        Self {
            call_index,
            arguments: JsonEnd::new(),
            has_ended: false,
        }
    }

    /// Adds a piece of the arguments. Returns the offset in the piece at which the arguments are complete, or `None` if they are
    /// incomplete.
    fn end_with(&mut self, piece: &str) -> Option<usize> {
        match self.arguments.push(piece.as_bytes()) {
            JsonEndProgress::CompleteAt(end) => Some(end),
            JsonEndProgress::More => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::translation::answer::StopCause;

    /// Returns one line per event, with the pieces of a call's arguments joined.
    fn passed(events: &[AnswerEvent<'static>]) -> Vec<String> {
        let mut order = CallOrder::default();
        let mut lines: Vec<String> = Vec::new();
        for event in events {
            order
                .push(event.clone(), &mut |event| {
                    match event {
                        AnswerEvent::Call { name, .. } => lines.push(format!("{name}: ")),
                        AnswerEvent::Arguments { json, .. } => lines.last_mut().unwrap().push_str(&json),
                        AnswerEvent::Text(text) => lines.push(text.into_owned()),
                        other => lines.push(format!("{other:?}")),
                    }
                    Ok(())
                })
                .unwrap();
        }
        lines
    }

    fn call(call_index: u32) -> AnswerEvent<'static> {
        AnswerEvent::Call {
            call_index,
            id: format!("call_{call_index}").into(),
            name: format!("tool{call_index}").into(),
        }
    }

    fn piece(call_index: u32, json: &str) -> AnswerEvent<'static> {
        AnswerEvent::Arguments {
            call_index,
            json: json.to_owned().into(),
        }
    }

    const PIECES: [&str; 4] = ["{\"a\":", "\"}\\\"", "\",\"b\":[1", "]}"];

    proptest! {
        /// Covers all interleavings of three calls in up to four pieces, with each call's own pieces in order.
        #[test]
        fn calls_that_overlap_come_one_after_the_other(order in Just((0..15_usize).collect::<Vec<_>>()).prop_shuffle(), ends: bool) {
            let mut next = [0_usize; 3];
            let mut events = Vec::new();
            for ticket in order {
                let call_index = ticket % 3;
                let number = u32::try_from(call_index).unwrap();
                let at = next[call_index];
                next[call_index] += 1;
                events.push(if at == 0 { call(number) } else { piece(number, PIECES[at - 1]) });
                if at == PIECES.len() && ends {
                    events.push(AnswerEvent::CallEnd { call_index: number });
                }
            }
            events.push(AnswerEvent::Stop(StopCause::Calls));
            let lines = passed(&events);
            let whole = PIECES.concat();
            let mut calls: Vec<_> = lines[..3].to_vec();
            calls.sort();
            prop_assert_eq!(calls, (0..3).map(|call_index| format!("tool{call_index}: {whole}")).collect::<Vec<_>>());
            prop_assert_eq!(&lines[3..], ["Stop(Calls)"]);
        }
    }

    #[test]
    fn text_within_a_call_waits_for_its_end_and_the_answers_end_ends_all() {
        let text = AnswerEvent::Text("text".into());
        let lines = passed(&[call(0), piece(0, "{\"a\""), text.clone(), piece(0, ":1}"), text.clone()]);
        assert_eq!(lines, ["tool0: {\"a\":1}", "text", "text"]);
        let lines = passed(&[
            call(0),
            call(1),
            piece(1, "{"),
            text,
            AnswerEvent::Stop(StopCause::MaxTokens),
        ]);
        let expected = [
            "tool0: ",
            "CallCut { call_index: 0 }",
            "tool1: {",
            "CallCut { call_index: 1 }",
            "text",
            "Stop(MaxTokens)",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_call_whose_arguments_are_incomplete_is_cut_off_by_an_early_end_alone() {
        let end = |call_index: u32| AnswerEvent::CallEnd { call_index };
        let refusal = AnswerEvent::Refusal("no".into());
        for cause in [
            StopCause::Sequence,
            StopCause::MaxTokens,
            StopCause::ContextFull,
            StopCause::Refused,
            StopCause::Filtered,
            StopCause::Malformed,
        ] {
            let stop = AnswerEvent::Stop(cause);
            for arguments in ["", "{\"a\"", "{\"a\":[1}"] {
                // Some providers end a call that they have cut off.
                for ends in [false, true] {
                    let mut events = vec![call(0), piece(0, arguments)];
                    events.extend(ends.then(|| end(0)));
                    events.extend([refusal.clone(), stop.clone()]);
                    let cut = format!("tool0: {arguments}");
                    let last = format!("Stop({cause:?})");
                    let expected = [&*cut, "CallCut { call_index: 0 }", "Refusal(\"no\")", &*last];
                    assert_eq!(passed(&events), expected, "{ends}");
                }
            }
            let complete = passed(&[call(0), piece(0, "{}"), end(0), stop.clone()]);
            assert_eq!(complete, ["tool0: {}".to_owned(), format!("Stop({cause:?})")]);
            // Further content after the end of a call shows that the call needs no arguments.
            let followed = passed(&[call(0), end(0), call(1), piece(1, "{}"), stop]);
            assert_eq!(followed[..2], ["tool0: ", "tool1: {}"]);
            assert_eq!(followed.len(), 3);
        }
        for cause in [StopCause::End, StopCause::Calls] {
            let lines = passed(&[call(0), piece(0, "{\"a\""), AnswerEvent::Stop(cause)]);
            assert_eq!(lines, ["tool0: {\"a\"".to_owned(), format!("Stop({cause:?})")]);
        }
    }

    #[test]
    fn a_failure_ends_no_call() {
        let failed = AnswerEvent::Failed {
            status: 500,
            message: "down".into(),
        };
        let lines = passed(&[call(0), piece(0, "{"), call(1), piece(1, "{}"), failed]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].starts_with("Failed"), "{lines:?}");
    }

    #[test]
    fn reasoning_and_sources_that_wait_count_with_their_texts() {
        use crate::domain::translation::{answer::Citation, reasoning::ReasoningState};

        let long = || -> Cow<'static, str> { "x".repeat(WAITING_BYTES_MAX / 2).into() };
        let state = || AnswerEvent::Reasoning(ReasoningState::Redacted { data: long() });
        let source = || {
            AnswerEvent::Cited(Citation {
                url: "u".into(),
                title: None,
                quote: Some(long()),
            })
        };
        for (first, second) in [(state(), state()), (source(), source())] {
            let mut order = CallOrder::default();
            let mut emit = |_: AnswerEvent<'_>| Ok(());
            order.push(call(0), &mut emit).unwrap();
            order.push(first, &mut emit).unwrap();
            assert_eq!(order.push(second, &mut emit), Err(AnswerFault::CallsTooLarge));
        }
    }

    #[test]
    fn too_much_that_waits_is_a_fault() {
        let mut order = CallOrder::default();
        let mut emit = |_: AnswerEvent<'_>| Ok(());
        order.push(call(0), &mut emit).unwrap();
        order.push(call(1), &mut emit).unwrap();
        let most = "x".repeat(WAITING_BYTES_MAX - "call_1tool1".len());
        order.push(piece(1, &most), &mut emit).unwrap();
        assert_eq!(order.push(piece(1, "x"), &mut emit), Err(AnswerFault::CallsTooLarge));
    }
}

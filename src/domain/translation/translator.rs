//! Translates an answer as it arrives: the provider's bytes in, the client's bytes out.

use crate::domain::{
    translation::{
        Translation,
        answer::{
            ANSWER_BYTES_MAX, AnswerEvent, AnswerFault, EVENT_BYTES_MAX,
            call_order::CallOrder,
            read::AnswerEventReader,
            write::{AnswerEventWriter, AnswerForm, AnswerFrame},
        },
    },
    wire::{
        json_pick::{PathSet, Picker},
        sse::{EventSink, SseFramer},
        usage::Usage,
    },
};

/// The translation of one answer. Its output does not depend on how the provider's bytes are split into pieces.
#[derive(Debug)]
pub(crate) struct AnswerTranslator {
    input: AnswerInput,
    events: AnswerEvents,
    form: AnswerForm,
    /// The reason why the translation was aborted; further bytes are ignored. `None` unless it was aborted.
    fault: Option<AnswerFault>,
}

/// The provider's bytes that have not been read yet.
#[derive(Debug)]
enum AnswerInput {
    /// A stream of server-sent events.
    Events(Box<EventInput>),
    /// A non-streaming answer.
    Body(Vec<u8>),
}

/// A stream of server-sent events.
#[derive(Debug)]
struct EventInput {
    framer: SseFramer,
    event: EventData,
}

/// The current event.
#[derive(Debug)]
struct EventData {
    /// The data of the event so far, at most [`EVENT_BYTES_MAX`] bytes. A larger event is read by `skimmed`.
    data: Vec<u8>,
    /// Extracts the needed members from an event that is too large for `data`; `None` for any other event.
    skimmed: Option<Box<Picker>>,
    /// The paths to read in an event that is too large for `data`; `None` if the protocol's large events cannot be read.
    large_event_paths: Option<&'static PathSet>,
    name: Vec<u8>,
    has_ended: bool,
    is_too_large: bool,
}

/// The stages that each event passes through: the reader, the stage that keeps calls from interrupting each other, and the
/// writer.
#[derive(Debug)]
struct AnswerEvents {
    reader: AnswerEventReader,
    order: CallOrder,
    writer: AnswerEventWriter,
    /// Whether the provider has reported that the answer is complete or has failed.
    is_complete: bool,
    /// Whether the client gets a non-streaming answer.
    is_whole: bool,
}

impl EventData {
    fn new(large_event_paths: Option<&'static PathSet>) -> Self {
        Self {
            data: Vec::new(),
            skimmed: None,
            large_event_paths,
            name: Vec::new(),
            has_ended: false,
            is_too_large: false,
        }
    }

    /// Whether the event is too large to be translated. `open_name` is the value of the `event` field of an event that has not
    /// ended.
    fn is_unreadable(&self, open_name: &[u8]) -> bool {
        let name = if self.has_ended {
            self.name.as_slice()
        } else {
            open_name
        };
        let can_skim = |picker: &Picker| {
            let name = std::str::from_utf8(name).unwrap_or_default();
            !picker.is_inert() && AnswerEventReader::can_skim(name, picker)
        };
        self.is_too_large || self.skimmed.as_deref().is_some_and(|picker| !can_skim(picker))
    }

    /// Removes the data of the event to prepare for the next one.
    fn clear(&mut self) {
        self.data.clear();
        self.skimmed = None;
    }
}

impl EventSink for EventData {
    fn on_data(&mut self, bytes: &[u8]) {
        if let Some(picker) = &mut self.skimmed {
            picker.push(bytes);
        } else if self.data.len() + bytes.len() <= EVENT_BYTES_MAX {
            self.data.extend_from_slice(bytes);
        } else if let Some(paths) = self.large_event_paths {
            let mut picker = Picker::new(paths);
            picker.push(&std::mem::take(&mut self.data));
            picker.push(bytes);
            self.skimmed = Some(Box::new(picker));
        } else {
            self.is_too_large = true;
        }
    }

    fn on_event_end(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.has_ended = true;
    }
}

impl AnswerEvents {
    /// Reads an event or body, and writes its translation.
    fn pass(
        &mut self,
        out: &mut String,
        read: impl FnOnce(
            &mut AnswerEventReader,
            &mut dyn FnMut(AnswerEvent<'_>) -> Result<(), AnswerFault>,
        ) -> Result<(), AnswerFault>,
    ) -> Result<(), AnswerFault> {
        let Self {
            reader,
            order,
            writer,
            is_complete,
            is_whole,
        } = self;
        let mut write = |event: AnswerEvent<'_>| {
            if *is_whole && let AnswerEvent::Failed { status, .. } = event {
                return Err(AnswerFault::ProviderFailed { status });
            }
            *is_complete |= matches!(event, AnswerEvent::Stop(_) | AnswerEvent::Failed { .. });
            writer.on_event(event, out)
        };
        read(reader, &mut |event| order.push(event, &mut write))
    }
}

impl AnswerTranslator {
    /// Creates the translation of an answer that has not begun. `is_stream` says whether the provider answers with a stream of
    /// events.
    pub(crate) fn new(translation: &Translation, frame: AnswerFrame, is_stream: bool) -> Self {
        let frame_form = frame.form;
        let reader = AnswerEventReader::new(translation.to, &translation.chat);
        Self {
            input: match is_stream {
                true => AnswerInput::Events(Box::new(EventInput {
                    framer: SseFramer::new(),
                    event: EventData::new(reader.large_event_paths()),
                })),
                false => AnswerInput::Body(Vec::new()),
            },
            form: frame_form,
            events: AnswerEvents {
                reader,
                order: CallOrder::default(),
                writer: AnswerEventWriter::new(translation.from, frame),
                is_complete: false,
                is_whole: frame_form == AnswerForm::Whole,
            },
            fault: None,
        }
    }

    /// Returns the reason why the translation was aborted; `None` unless it was aborted.
    pub(crate) fn fault(&self) -> Option<AnswerFault> {
        self.fault
    }

    /// Whether the client gets a non-streaming answer.
    pub(crate) fn is_whole(&self) -> bool {
        self.form == AnswerForm::Whole
    }

    /// Returns the kinds of content that the client does not get.
    pub(crate) fn lost(&self) -> &[&'static str] {
        self.events.writer.losses().kinds()
    }

    /// Reads the next bytes of the provider's body, and appends the bytes for the client to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.fault.is_none()
            && let Err(fault) = self.read(bytes, out)
        {
            self.fault = Some(fault);
        }
    }

    fn read(&mut self, bytes: &[u8], out: &mut String) -> Result<(), AnswerFault> {
        match &mut self.input {
            AnswerInput::Body(body) => {
                if body.len() + bytes.len() > ANSWER_BYTES_MAX {
                    return Err(AnswerFault::AnswerTooLarge);
                }
                body.extend_from_slice(bytes);
                Ok(())
            }
            AnswerInput::Events(input) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let EventInput { framer, event } = &mut **input;
                    let read = framer.push_event(rest, event);
                    rest = rest.get(read..).unwrap_or_default();
                    if event.is_unreadable(framer.open_name()) {
                        return Err(AnswerFault::EventTooLarge);
                    }
                    if std::mem::take(&mut event.has_ended) {
                        pass_event(&mut self.events, event, out)?;
                        event.clear();
                    }
                }
                Ok(())
            }
        }
    }

    /// Handles the proper end of the provider's body. Afterwards, [`AnswerTranslator::is_complete`] says whether the answer is
    /// complete.
    pub(crate) fn on_end(&mut self, out: &mut String) {
        if self.fault.is_some() {
            return;
        }
        let result = match &mut self.input {
            AnswerInput::Body(body) => {
                let body = std::mem::take(body);
                match std::str::from_utf8(&body) {
                    Ok(text) => self.events.pass(out, |reader, emit| reader.on_body(text, emit)),
                    Err(_) => Err(AnswerFault::Unreadable),
                }
            }
            AnswerInput::Events(_) => self.events.pass(out, AnswerEventReader::on_end),
        };
        self.fault = result.err();
    }

    /// Whether the provider has completed the answer, or reported its failure.
    pub(crate) fn is_complete(&self) -> bool {
        self.events.is_complete
    }

    /// Writes the last bytes of a complete answer, with the usage that is billed. `ended_unix` is the time at which the answer
    /// ended, in seconds since the Unix epoch.
    pub(crate) fn finish(&mut self, usage: &Usage, ended_unix: i64, out: &mut String) {
        self.events.writer.finish(usage, ended_unix, out);
    }

    /// Writes the last bytes of a failed stream, with the error that corresponds to this HTTP status. Writes nothing for a
    /// non-streaming answer: nothing of it has been written yet, so the client gets an error answer instead.
    pub(crate) fn fail(&mut self, status: u16, message: &str, out: &mut String) {
        match self.form {
            AnswerForm::Stream | AnswerForm::Array => self.events.writer.fail(status, message, out),
            AnswerForm::Whole => {}
        }
    }
}

/// Reads one event.
fn pass_event(events: &mut AnswerEvents, event: &EventData, out: &mut String) -> Result<(), AnswerFault> {
    let Ok(name) = std::str::from_utf8(&event.name) else {
        return Err(AnswerFault::Unreadable);
    };
    if let Some(picker) = event.skimmed.as_deref() {
        return match picker.is_done() {
            true => events.pass(out, |reader, emit| reader.on_large_event(name, picker, emit)),
            false => Err(AnswerFault::Unreadable),
        };
    }
    let Ok(data) = std::str::from_utf8(&event.data) else {
        return Err(AnswerFault::Unreadable);
    };
    events.pass(out, |reader, emit| reader.on_event(name, data, emit))
}

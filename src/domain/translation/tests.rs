//! Translation on recordings: answers as providers send them, and conversations of several turns. The README of
//! `tests/golden/translation/` says what its files are.

mod arbitrary;
mod clients;
mod content;
mod folds;
mod interleaving;
mod recordings;
mod round_trips;
mod usage;

use crate::domain::{
    translation::{
        ChatTraits, ReasoningBack, Translation,
        answer::{
            AnswerFault,
            write::{AnswerForm, AnswerFrame},
        },
        losses::TranslationMode,
        reasoning::ReasoningMaker,
        tool_names::ToolNames,
        translator::AnswerTranslator,
    },
    wire::{Protocol, UpstreamProtocol, protocol::Break, usage::Usage},
};

/// Every protocol of providers.
const TARGETS: [UpstreamProtocol; 4] = [
    UpstreamProtocol::Messages,
    UpstreamProtocol::Responses,
    UpstreamProtocol::Gemini,
    UpstreamProtocol::Chat,
];

/// All that a client gets of an answer.
#[derive(Debug, PartialEq, Eq)]
struct ClientBytes {
    /// The bytes of the body.
    text: String,
    /// Why the answer could not be translated to its end.
    fault: Option<AnswerFault>,
    /// The provider has completed the answer, or reported its failure.
    is_complete: bool,
}

/// A strict translation, to a host that wants all reasoning back.
fn translation(from: Protocol, to: UpstreamProtocol) -> Translation {
    Translation {
        from,
        to,
        mode: TranslationMode::Strict,
        chat: ChatTraits {
            reasoning_back: ReasoningBack::Always,
            ..ChatTraits::default()
        },
    }
}

fn maker() -> ReasoningMaker {
    ReasoningMaker::new("host", "model", "a")
}

fn frame(form: AnswerForm, shows_reasoning: bool) -> AnswerFrame {
    AnswerFrame {
        form,
        id: "7f".to_owned(),
        model: "big".to_owned(),
        created_unix: 1_790_000_000,
        input_estimate: 25,
        shows_reasoning,
        maker: maker(),
        names: ToolNames::default(),
        request: r#"{"model": "big", "input": "hi"}"#.to_owned(),
    }
}

/// The forms of answer that a client can request.
fn forms(client: Protocol) -> &'static [AnswerForm] {
    match client {
        Protocol::Messages | Protocol::Responses => &[AnswerForm::Stream, AnswerForm::Whole],
        Protocol::Gemini => &[AnswerForm::Stream, AnswerForm::Array, AnswerForm::Whole],
    }
}

/// Translates an answer that arrives in these pieces and then ends, as the gateway does.
fn client_bytes<'p>(
    translation: &Translation,
    frame: AnswerFrame,
    is_stream: bool,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    usage: &Usage,
) -> ClientBytes {
    let mut translator = AnswerTranslator::new(translation, frame, is_stream);
    let mut text = String::new();
    for piece in pieces {
        translator.push(piece, &mut text);
    }
    translator.on_end(&mut text);
    let (fault, is_complete) = (translator.fault(), translator.is_complete());
    match fault {
        Some(fault) => translator.fail(502, &fault.to_string(), &mut text),
        None if is_complete => translator.finish(usage, 1_790_000_009, &mut text),
        None => translator.fail(503, Break::ProviderEnded.message(), &mut text),
    }
    ClientBytes {
        text,
        fault,
        is_complete,
    }
}

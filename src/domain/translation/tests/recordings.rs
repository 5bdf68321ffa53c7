//! The recordings of `tests/golden/translation/`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde::Deserialize;
use serde_json::Value;

use super::{ClientBytes, TARGETS, client_bytes, frame, translation};
use crate::domain::{
    translation::{ChatReasoning, Translation, answer::write::AnswerForm},
    wire::{Protocol, UpstreamProtocol, usage::Usage},
};

/// An answer of a provider, and what it says.
#[derive(Debug)]
pub(super) struct Recording {
    /// The name of its files.
    pub(super) name: String,
    /// The provider's protocol.
    pub(super) protocol: UpstreamProtocol,
    /// The answer as a stream.
    pub(super) stream: String,
    /// The same answer without a stream; `None` for an error that only streams can have.
    pub(super) body: Option<String>,
    /// What it says.
    pub(super) expected: ExpectedAnswer,
}

/// What an answer says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExpectedAnswer {
    /// The content, as [`super::content::AnswerContent`] has it.
    pub(super) content: Vec<Value>,
    /// The end, as [`super::content::AnswerContent`] has it.
    pub(super) end: String,
    /// The opaque texts of its reasoning.
    pub(super) opaque: Vec<String>,
    /// Where a `chat/completions` host has its reasoning.
    pub(super) reasoning: ChatReasoning,
    /// The usage that it reports.
    pub(super) usage: Usage,
    /// The error that ends it.
    pub(super) error: Option<ExpectedError>,
}

/// The error of an answer that fails.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    /// The HTTP status that it corresponds to.
    pub(super) status: u16,
    /// The message for the client.
    pub(super) message: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/translation")
}

impl Recording {
    /// All recordings.
    pub(super) fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Recording>> = LazyLock::new(|| {
            let entries = fs::read_dir(folder()).unwrap();
            let mut names: Vec<String> = entries
                .filter_map(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    Some(name.strip_suffix(".sse")?.to_owned())
                })
                .collect();
            names.sort();
            names.iter().map(|name| Recording::read(name)).collect()
        });
        &ALL
    }

    /// The recording of a provider that speaks this protocol.
    pub(super) fn of(protocol: UpstreamProtocol, case: &str) -> &'static Self {
        let name = format!("{}-{case}", protocol.as_str());
        let found = Self::all().iter().find(|recording| recording.name == name);
        found.unwrap_or_else(|| panic!("no recording {name}"))
    }

    fn read(name: &str) -> Self {
        let read = |ending: &str| fs::read_to_string(folder().join(format!("{name}.{ending}")));
        let protocol = TARGETS.into_iter().find(|protocol| {
            let case = name.strip_prefix(protocol.as_str());
            case.is_some_and(|case| case.starts_with('-'))
        });
        let expected = read("expected.json").unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            name: name.to_owned(),
            protocol: protocol.unwrap_or_else(|| panic!("{name}: no protocol")),
            stream: read("sse").unwrap(),
            body: read("json").ok(),
            expected: serde_json::from_str(&expected).unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }

    /// The translation of this provider's answers for a client.
    pub(super) fn translation(&self, client: Protocol) -> Translation {
        let mut translation = translation(client, self.protocol);
        translation.chat.reasoning = self.expected.reasoning;
        translation
    }

    /// What a client gets of the stream. It can want a form, and to see the reasoning.
    pub(super) fn stream_answer(&self, client: Protocol, (form, shows): (AnswerForm, bool)) -> ClientBytes {
        let pieces = [self.stream.as_bytes()];
        let usage = &self.expected.usage;
        client_bytes(&self.translation(client), frame(form, shows), true, pieces, usage)
    }

    /// What a client gets of the answer without a stream; `None` if there is none.
    pub(super) fn body_answer(&self, client: Protocol, (form, shows): (AnswerForm, bool)) -> Option<ClientBytes> {
        let pieces = [self.body.as_ref()?.as_bytes()];
        let usage = &self.expected.usage;
        let translation = self.translation(client);
        Some(client_bytes(&translation, frame(form, shows), false, pieces, usage))
    }
}

/// Calls `check` for each recording, client, and wish to see the reasoning.
pub(super) fn for_each_case(check: impl Fn(&Recording, Protocol, bool)) {
    for recording in Recording::all() {
        for client in Protocol::ALL {
            for shows in [true, false] {
                // Shown if the check fails.
                println!("{} for {}, reasoning: {shows}", recording.name, client.as_str());
                check(recording, client, shows);
            }
        }
    }
}

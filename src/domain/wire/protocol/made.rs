//! Finds the state that an answer has created at the provider: items, containers, files. A later request may name it.
//!
//! Only places that the provider fills are read. What a model writes, such as a tool's input, could contain any name.

use std::borrow::Cow;

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, Picks, Segment, Take};
use crate::domain::wire::provider_state::StateId;

/// The most names recorded of one answer, of each sort.
pub(super) const MADE_MAX: usize = 256;

/// In a stream's events, and in a whole body.
pub(super) const MESSAGES: &[Path] = &[
    one(&[Key("message"), Key("container"), Key("id")]),
    one(&[Key("delta"), Key("container"), Key("id")]),
    one(&[Key("container"), Key("id")]),
    all(&[
        Key("content_block"),
        Key("content"),
        Key("content"),
        Each,
        Key("file_id"),
    ]),
    all(&[
        Key("content"),
        Each,
        Key("content"),
        Key("content"),
        Each,
        Key("file_id"),
    ]),
];

/// In a stream's events, and in a whole body. The first of them are gone with an answer that is not kept.
pub(super) const RESPONSES: &[Path] = &[
    one(&[Key("item"), Key("id")]),
    all(&[Key("output"), Each, Key("id")]),
    one(&[Key("response"), Key("conversation"), Key("id")]),
    one(&[Key("conversation"), Key("id")]),
    one(&[Key("item"), Key("container_id")]),
    one(&[Key("item"), Key("environment"), Key("container_id")]),
    all(&[
        Key("item"),
        Key("content"),
        Each,
        Key("annotations"),
        Each,
        Key("file_id"),
    ]),
    all(&[Key("output"), Each, Key("container_id")]),
    all(&[Key("output"), Each, Key("environment"), Key("container_id")]),
    all(&[
        Key("output"),
        Each,
        Key("content"),
        Each,
        Key("annotations"),
        Each,
        Key("file_id"),
    ]),
];
/// How many of them are gone with an answer that is not kept.
const KEPT_RESPONSES: usize = 4;

/// In every chunk.
pub(super) const GEMINI: &[Path] = &[all(&[
    Key("candidates"),
    Each,
    Key("content"),
    Key("parts"),
    Each,
    Key("fileData"),
    Key("fileUri"),
])];

const fn one(segments: &'static [Segment]) -> Path {
    Path::new(segments, Take::Scalar)
}

const fn all(segments: &'static [Segment]) -> Path {
    Path::new(segments, Take::List)
}

/// The state that an answer has created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// State that exists only if the answer is kept: items, conversations.
    pub kept: Vec<StateId>,
    /// State that exists anyway: containers, files.
    pub always: Vec<StateId>,
}

impl Made {
    /// Takes in what an event or a body names; `first` is the place of [`MESSAGES`] in their set.
    pub(super) fn note_messages(&mut self, picks: &Picks<'_>, first: usize) {
        note(&mut self.always, picks, first, MESSAGES);
    }

    /// The same for [`RESPONSES`].
    pub(super) fn note_responses(&mut self, picks: &Picks<'_>, first: usize) {
        let (kept, always) = RESPONSES.split_at(KEPT_RESPONSES);
        note(&mut self.kept, picks, first, kept);
        note(&mut self.always, picks, first + KEPT_RESPONSES, always);
    }

    /// The same for [`GEMINI`].
    pub(super) fn note_gemini(&mut self, picks: &Picks<'_>, first: usize) {
        note(&mut self.always, picks, first, GEMINI);
    }

    /// The bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        (self.kept.capacity() + self.always.capacity()) * size_of::<StateId>()
    }
}

fn note(ids: &mut Vec<StateId>, picks: &Picks<'_>, first: usize, paths: &[Path]) {
    for path in first..first + paths.len() {
        picks.each_text(path).for_each(|text: Cow<'_, str>| {
            let id = StateId::new(&text);
            if !text.is_empty() && ids.len() < MADE_MAX && !ids.contains(&id) {
                ids.push(id);
            }
        });
    }
}

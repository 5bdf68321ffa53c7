//! Finds the state that an answer has created at the provider: items, containers, files. A later request can refer to it.
//!
//! Only fields that the provider fills are read, because text that a model writes, such as a tool's input, could contain any
//! identifier.

use std::borrow::Cow;

use crate::domain::wire::json_pick::PickSegment::{Each, Key};
use crate::domain::wire::json_pick::{PickPath, PickRule, PickSegment, Picks};
use crate::domain::wire::provider_state::StateId;

/// The maximum number of identifiers that are recorded for one answer, in each list of [`CreatedState`].
pub(super) const MADE_MAX: usize = 256;

/// The paths at which events and complete bodies of the Messages protocol contain identifiers of state.
pub(super) const MESSAGES: &[PickPath] = &[
    single_path(&[Key("message"), Key("container"), Key("id")]),
    single_path(&[Key("delta"), Key("container"), Key("id")]),
    single_path(&[Key("container"), Key("id")]),
    list_path(&[
        Key("content_block"),
        Key("content"),
        Key("content"),
        Each,
        Key("file_id"),
    ]),
    list_path(&[
        Key("content"),
        Each,
        Key("content"),
        Key("content"),
        Each,
        Key("file_id"),
    ]),
];

/// The paths at which events and complete bodies of the Responses protocol contain identifiers of state. The state at the first
/// [`KEPT_RESPONSES`] paths exists only if the provider stores the answer.
pub(super) const RESPONSES: &[PickPath] = &[
    single_path(&[Key("item"), Key("id")]),
    list_path(&[Key("output"), Each, Key("id")]),
    single_path(&[Key("response"), Key("conversation"), Key("id")]),
    single_path(&[Key("conversation"), Key("id")]),
    single_path(&[Key("item"), Key("container_id")]),
    single_path(&[Key("item"), Key("environment"), Key("container_id")]),
    list_path(&[
        Key("item"),
        Key("content"),
        Each,
        Key("annotations"),
        Each,
        Key("file_id"),
    ]),
    list_path(&[Key("output"), Each, Key("container_id")]),
    list_path(&[Key("output"), Each, Key("environment"), Key("container_id")]),
    list_path(&[
        Key("output"),
        Each,
        Key("content"),
        Each,
        Key("annotations"),
        Each,
        Key("file_id"),
    ]),
];
/// The number of paths in [`RESPONSES`] whose state exists only if the provider stores the answer.
const KEPT_RESPONSES: usize = 4;

/// The paths at which chunks of the Gemini-style protocol contain identifiers of state.
pub(super) const GEMINI: &[PickPath] = &[list_path(&[
    Key("candidates"),
    Each,
    Key("content"),
    Key("parts"),
    Each,
    Key("fileData"),
    Key("fileUri"),
])];

const fn single_path(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(segments, PickRule::Scalar)
}

const fn list_path(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(segments, PickRule::List)
}

/// The identifiers of the state that an answer has created at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedState {
    /// State that exists only if the provider stores the answer: items, conversations.
    pub kept: Vec<StateId>,
    /// State that exists in any case: containers, files.
    pub always: Vec<StateId>,
}

impl CreatedState {
    /// Records the state that an event or body of the Messages protocol names. `first` is the index of the first path of
    /// [`MESSAGES`] in the picker's set.
    pub(super) fn record_messages(&mut self, picks: &Picks<'_>, first: usize) {
        record_ids(&mut self.always, picks, first, MESSAGES);
    }

    /// Records the state that an event or body of the Responses protocol names. `first` is the index of the first path of
    /// [`RESPONSES`] in the picker's set.
    pub(super) fn record_responses(&mut self, picks: &Picks<'_>, first: usize) {
        let (kept, always) = RESPONSES.split_at(KEPT_RESPONSES);
        record_ids(&mut self.kept, picks, first, kept);
        record_ids(&mut self.always, picks, first + KEPT_RESPONSES, always);
    }

    /// Records the state that a chunk of the Gemini-style protocol names. `first` is the index of the first path of [`GEMINI`] in
    /// the picker's set.
    pub(super) fn record_gemini(&mut self, picks: &Picks<'_>, first: usize) {
        record_ids(&mut self.always, picks, first, GEMINI);
    }

    /// Returns the number of bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        (self.kept.capacity() + self.always.capacity()) * size_of::<StateId>()
    }
}

fn record_ids(ids: &mut Vec<StateId>, picks: &Picks<'_>, first: usize, paths: &[PickPath]) {
    for path in first..first + paths.len() {
        picks.each_text(path).for_each(|text: Cow<'_, str>| {
            let id = StateId::new(&text);
            if !text.is_empty() && ids.len() < MADE_MAX && !ids.contains(&id) {
                ids.push(id);
            }
        });
    }
}

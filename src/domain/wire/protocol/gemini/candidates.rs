//! The candidates of an answer, and which of them have ended.
//!
//! A finish reason ends its candidate only until more content follows: a tool that the provider runs ends with a reason of its
//! own, and some servers send an empty reason first, or one in each chunk.

use crate::domain::wire::{
    json_pick::{
        ObjectMarks, PickPath, PickRule,
        PickSegment::{self, Each, Key},
        Picks,
    },
    usage::UnlimitedWork,
};

/// The mark of a candidate with content.
const CONTENT: u8 = 1;
/// The mark of a candidate with a finish reason.
const REASON: u8 = 1 << 1;
/// The maximum number of candidates that are told apart; further ones share the last bit. The vendor allows at most eight
/// (<https://ai.google.dev/api/generate-content>, `candidateCount`).
const PLACES: u8 = 64;
/// The JSON texts that mean no reason: the name and the number of that enum value.
const NO_REASON: &[&str] = &["\"FINISH_REASON_UNSPECIFIED\"", "0"];

/// The paths that mark candidates.
pub(super) const CANDIDATE_PATHS: [PickPath; 3] = [
    PickPath::new(&[Key("candidates"), Each], PickRule::ListMarked),
    PickPath::new(&[Key("candidates"), Each, Key("index")], PickRule::MarkNumber),
    PickPath::new(
        &[Key("candidates"), Each, Key("finishReason")],
        PickRule::MarkPresence {
            bits: REASON,
            none: NO_REASON,
        },
    ),
];
/// The indexes of the first two in [`CANDIDATE_PATHS`].
pub(super) const EACH: usize = 0;
pub(super) const INDEX: usize = 1;

/// The path of a kind of parts that is content.
pub(super) const fn content_part(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(
        segments,
        PickRule::MarkPresence {
            bits: CONTENT,
            none: &[],
        },
    )
}

/// The candidates so far, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates {
    begun: u64,
    ended: u64,
    /// The provider has refused the prompt, and no content has arrived since.
    refused: bool,
}

impl Candidates {
    /// Handles the candidates of a chunk. A candidate without a number gets its index, because an `index` of zero is omitted.
    pub(super) fn on_chunk(&mut self, candidates: impl Iterator<Item = ObjectMarks>, refuses: bool) {
        for (place, ObjectMarks { bits, number }) in (0..PLACES).chain(std::iter::repeat(PLACES)).zip(candidates) {
            let candidate = 1 << number.unwrap_or(place).min(PLACES - 1);
            self.begun |= candidate;
            if bits & REASON != 0 {
                self.ended |= candidate;
            } else if bits & CONTENT != 0 {
                self.ended &= !candidate;
                self.refused = false;
            }
        }
        self.refused |= refuses;
    }

    /// Whether all candidates have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.refused || self.begun != 0 && self.ended == self.begun
    }
}

/// Whether one of these candidates has a finish reason.
pub(super) fn has_ended_candidate(mut candidates: impl Iterator<Item = ObjectMarks>) -> bool {
    candidates.any(|candidate| candidate.bits & REASON != 0)
}

macro_rules! count {
    ($take:expr, $($kind:literal),+) => {
        PickPath::new(
            &[Key("candidates"), Each, Key("content"), Key("parts"), Each, $(Key($kind)),+],
            $take,
        )
    };
}

/// Counts media types of images.
const IMAGE: PickRule = PickRule::CountBeginning(&["image"]);

/// The paths of calls, then of their results, then of images.
pub(super) const TOOL_PATHS: [PickPath; 6] = [
    count!(PickRule::Count, "executableCode"),
    count!(PickRule::Count, "toolCall"),
    count!(PickRule::Count, "codeExecutionResult"),
    count!(PickRule::Count, "toolResponse"),
    count!(IMAGE, "inlineData", "mimeType"),
    count!(IMAGE, "fileData", "mimeType"),
];

/// The calls of the provider's own tools, their results, and the images so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProviderToolCounts {
    calls: u64,
    results: u64,
    images: u64,
}

impl ProviderToolCounts {
    /// Adds the counts of a chunk; [`TOOL_PATHS`] begin at index `base`.
    pub(super) fn on_chunk(&mut self, picks: &Picks<'_>, base: usize) {
        let count = |at: usize| picks.count(base + at);
        self.calls = self.calls.saturating_add(count(0) + count(1));
        self.results = self.results.saturating_add(count(2) + count(3));
        self.images = self.images.saturating_add(count(4) + count(5));
    }

    /// The totals, with `searches`, which are reported elsewhere. A call may appear without its result, and a result without its
    /// call.
    pub(super) fn unlimited(&self, searches: u64) -> UnlimitedWork {
        UnlimitedWork {
            tool_calls: self.calls.max(self.results).saturating_add(searches),
            images: self.images,
        }
    }
}

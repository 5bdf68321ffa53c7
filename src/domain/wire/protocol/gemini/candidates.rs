//! Tracks the candidates of an answer in the Gemini-style protocol, and which of them have ended.
//!
//! A finish reason ends its candidate only until more content follows: the output of a tool that the provider runs ends with a
//! reason of its own, and some servers send an empty reason first, or a reason in each chunk.

use crate::domain::wire::{
    json_pick::{
        ObjectMarks, PickPath, PickRule,
        PickSegment::{self, Each, Key},
        Picks,
    },
    usage::UnlimitedWork,
};

/// The mark of a candidate that has content.
const CONTENT: u8 = 1;
/// The mark of a candidate that has a finish reason.
const REASON: u8 = 1 << 1;
/// The maximum number of candidates that are distinguished. Further ones share the last bit. The vendor allows at most eight
/// (<https://ai.google.dev/api/generate-content>, `candidateCount`).
const PLACES: u8 = 64;
/// The JSON texts that mean no finish reason: the name and the number of that enum value.
const NO_REASON: &[&str] = &["\"FINISH_REASON_UNSPECIFIED\"", "0"];

/// The paths whose values mark the candidates of a chunk.
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
/// The index in [`CANDIDATE_PATHS`] of the path of each candidate. The next constant is that of a candidate's number.
pub(super) const EACH: usize = 0;
pub(super) const INDEX: usize = 1;

/// Returns the path of a kind of parts that is content. It marks the candidate that has such a part.
pub(super) const fn content_part(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(
        segments,
        PickRule::MarkPresence {
            bits: CONTENT,
            none: &[],
        },
    )
}

/// The candidates of an answer so far, one bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates {
    begun: u64,
    ended: u64,
    /// Whether the provider has refused the prompt and no content has arrived since then.
    refused: bool,
}

impl Candidates {
    /// Handles the candidates of a chunk. A candidate without a number gets its index in the chunk, because an `index` of zero is
    /// omitted. `refuses` is true if the chunk refuses the prompt.
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

/// The rule that counts the media types of images.
const IMAGE: PickRule = PickRule::CountBeginning(&["image"]);

/// The paths that count calls of the provider's own tools, then their results, then images.
pub(super) const TOOL_PATHS: [PickPath; 6] = [
    count!(PickRule::Count, "executableCode"),
    count!(PickRule::Count, "toolCall"),
    count!(PickRule::Count, "codeExecutionResult"),
    count!(PickRule::Count, "toolResponse"),
    count!(IMAGE, "inlineData", "mimeType"),
    count!(IMAGE, "fileData", "mimeType"),
];

/// The number of calls of the provider's own tools, of their results, and of images so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProviderToolCounts {
    calls: u64,
    results: u64,
    images: u64,
}

impl ProviderToolCounts {
    /// Adds the counts of a chunk. `base` is the index of the first path of [`TOOL_PATHS`].
    pub(super) fn on_chunk(&mut self, picks: &Picks<'_>, base: usize) {
        let count = |at: usize| picks.count(base + at);
        self.calls = self.calls.saturating_add(count(0) + count(1));
        self.results = self.results.saturating_add(count(2) + count(3));
        self.images = self.images.saturating_add(count(4) + count(5));
    }

    /// Returns the totals. `searches` are reported elsewhere and are added. A call can appear without its result, and a result
    /// without its call, so the larger number of both is used.
    pub(super) fn unlimited(&self, searches: u64) -> UnlimitedWork {
        UnlimitedWork {
            tool_calls: self.calls.max(self.results).saturating_add(searches),
            images: self.images,
        }
    }
}

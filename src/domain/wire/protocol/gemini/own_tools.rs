//! Counts the calls of the provider's own tools and the images in an answer.

use crate::domain::wire::json_pick::PickSegment::{Each, Key};
use crate::domain::wire::json_pick::{PickPath, PickRule, Picks};
use crate::domain::wire::usage::UnlimitedWork;

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
    /// Adds the counts of a chunk; [`PATHS`] begin at index `base`.
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

//! What an answer shows of the provider's own tools and of images.

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, Picks, Take};
use crate::domain::wire::usage::Unlimited;

macro_rules! count {
    ($take:expr, $($kind:literal),+) => {
        Path::new(
            &[Key("candidates"), Each, Key("content"), Key("parts"), Each, $(Key($kind)),+],
            $take,
        )
    };
}

/// How the media types of images begin.
const IMAGE: Take = Take::CountBeginning(&["image"]);

/// Calls, then their results, then images.
pub(super) const PATHS: [Path; 6] = [
    count!(Take::Count, "executableCode"),
    count!(Take::Count, "toolCall"),
    count!(Take::Count, "codeExecutionResult"),
    count!(Take::Count, "toolResponse"),
    count!(IMAGE, "inlineData", "mimeType"),
    count!(IMAGE, "fileData", "mimeType"),
];

/// What the chunks have shown so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnTools {
    calls: u64,
    results: u64,
    images: u64,
}

impl OwnTools {
    /// A chunk has come; the paths begin at `base`.
    pub(super) fn chunk(&mut self, picks: &Picks<'_>, base: usize) {
        let count = |at: usize| picks.count(base + at);
        self.calls = self.calls.saturating_add(count(0) + count(1));
        self.results = self.results.saturating_add(count(2) + count(3));
        self.images = self.images.saturating_add(count(4) + count(5));
    }

    /// All of it; searches are told of elsewhere. A call may be shown without its result, and a result without its call.
    pub(super) fn unlimited(&self, searches: u64) -> Unlimited {
        Unlimited {
            tool_calls: self.calls.max(self.results).saturating_add(searches),
            images: self.images,
        }
    }
}

//! Which candidates an answer has, and which of them have ended.
//!
//! A reason to finish ends its candidate only as long as nothing comes behind it: a tool that the provider runs ends with a
//! reason of its own, and some servers send an empty one in front, or one in each chunk.

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Marks, Path, Segment, Take};

/// A candidate brings content.
const CONTENT: u8 = 1;
/// A candidate says why it has ended.
const REASON: u8 = 1 << 1;
/// Candidates that are told apart; those behind share the last place. The vendor gives eight at most
/// (<https://ai.google.dev/api/generate-content>, `candidateCount`).
const PLACES: u8 = 64;
/// What stands where there is no reason, as it is written: the name and the number of the value that means none.
const NO_REASON: &[&str] = &["\"FINISH_REASON_UNSPECIFIED\"", "0"];

/// The paths that mark a candidate.
pub(super) const PATHS: [Path; 3] = [
    Path::new(&[Key("candidates"), Each], Take::ListMarked),
    Path::new(&[Key("candidates"), Each, Key("index")], Take::MarkNumber),
    Path::new(
        &[Key("candidates"), Each, Key("finishReason")],
        Take::MarkPresence {
            bits: REASON,
            none: NO_REASON,
        },
    ),
];
/// Their places among them.
pub(super) const EACH: usize = 0;
pub(super) const INDEX: usize = 1;

/// A kind of parts that is content.
pub(super) const fn part(segments: &'static [Segment]) -> Path {
    Path::new(
        segments,
        Take::MarkPresence {
            bits: CONTENT,
            none: &[],
        },
    )
}

/// The candidates that were seen, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates {
    seen: u64,
    ended: u64,
    /// The provider has refused the prompt, and nothing has come since.
    refused: bool,
}

impl Candidates {
    /// A chunk has come with these candidates. One without a number has the number of its place, as zero is left out.
    pub(super) fn chunk(&mut self, candidates: impl Iterator<Item = Marks>, refuses: bool) {
        for (place, Marks { bits, number }) in (0..PLACES).chain(std::iter::repeat(PLACES)).zip(candidates) {
            let candidate = 1 << number.unwrap_or(place).min(PLACES - 1);
            self.seen |= candidate;
            if bits & REASON != 0 {
                self.ended |= candidate;
            } else if bits & CONTENT != 0 {
                self.ended &= !candidate;
                self.refused = false;
            }
        }
        self.refused |= refuses;
    }

    /// Whether no more is to be expected of any of them.
    pub(super) fn have_ended(&self) -> bool {
        self.refused || self.seen != 0 && self.ended == self.seen
    }
}

/// Whether one of these candidates says that it has ended.
pub(super) fn one_ends(mut candidates: impl Iterator<Item = Marks>) -> bool {
    candidates.any(|candidate| candidate.bits & REASON != 0)
}

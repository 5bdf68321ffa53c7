//! What the protocol modules share: the reply to render, the usage to report, the frames of a stream.

use bytes::Bytes;

use super::answer::ScriptedContent;
use super::script::UsageStyle;

/// A stand-in for signatures of thinking and encrypted reasoning; base64, as clients expect.
pub(super) const SIGNATURE: &str = "c2FtcGxlLXByb3ZpZGVyIHNpZ25hdHVyZSwgbm90IGEgc2VjcmV0";

/// Everything the rendering of an answer depends on.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    /// The unique part of every id in the body.
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    /// When it was made, Unix seconds.
    pub(super) created_at: i64,
    pub(super) answer: &'a ScriptedContent,
    /// The usage to report; `None` reports none.
    pub(super) counts: Option<Counts>,
    /// Other models that work on it (Messages).
    pub(super) others: Others<'a>,
    /// Whether encrypted reasoning was asked for (Responses).
    pub(super) encrypted_reasoning: bool,
}

/// Models other than the one asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others<'a> {
    /// It is asked for advice.
    pub(super) advisor: Option<&'a str>,
    pub(super) fallback: Option<&'a str>,
}

/// Tokens as reported; signed, because a script may ask for nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Input outside of any cache.
    pub(super) uncached: i64,
    /// Input read from a cache.
    pub(super) cache_read: i64,
    /// Input written to a cache.
    pub(super) cache_write: i64,
    /// Output that is no thinking.
    pub(super) spoken: i64,
    pub(super) thinking: i64,
}

impl Counts {
    /// The counts as `style` would have them reported.
    pub(super) fn styled(self, style: UsageStyle) -> Option<Self> {
        let same = |count| {
            Some(Self {
                uncached: count,
                cache_read: count,
                cache_write: count,
                spoken: count,
                thinking: count,
            })
        };
        match style {
            UsageStyle::True => Some(self),
            UsageStyle::None => None,
            UsageStyle::Absurd => same(i64::MAX),
            UsageStyle::Zero => same(0),
            UsageStyle::Negative => same(-7),
        }
    }

    /// All input, cached or not.
    pub(super) fn input(&self) -> i64 {
        self.uncached
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// All output, thinking included.
    pub(super) fn output(&self) -> i64 {
        self.spoken.saturating_add(self.thinking)
    }
}

/// One event of a stream, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// What the script can hold on to.
    pub(super) kind: FrameKind,
    /// The bytes on the wire.
    pub(super) bytes: Bytes,
}

/// What a frame is to the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Carries a piece of content.
    Delta,
    /// Says that the answer is complete, or comes after that.
    Final,
    Other,
}

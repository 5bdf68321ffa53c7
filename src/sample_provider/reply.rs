//! Shared by the protocol modules: the reply to render, the usage to report, the frames of a stream.

use bytes::Bytes;

use super::answer::ScriptedContent;
use super::script::UsageStyle;

/// A placeholder for signatures of thinking and for encrypted reasoning; base64, as clients expect.
pub(super) const SIGNATURE: &str = "c2FtcGxlLXByb3ZpZGVyIHNpZ25hdHVyZSwgbm90IGEgc2VjcmV0";

/// Everything that the rendering of an answer depends on.
#[derive(Debug)]
pub(super) struct SampleReply<'a> {
    /// The unique part of every id in the body.
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    /// Creation time, in seconds since the Unix epoch.
    pub(super) created_at: i64,
    pub(super) answer: &'a ScriptedContent,
    /// The usage to report; `None` reports none.
    pub(super) counts: Option<ReportedCounts>,
    /// Other models that work on the answer (Messages).
    pub(super) others: OtherModels<'a>,
    /// Whether encrypted reasoning was requested (Responses).
    pub(super) encrypted_reasoning: bool,
}

/// Models other than the requested one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherModels<'a> {
    /// The model that gives advice.
    pub(super) advisor: Option<&'a str>,
    pub(super) fallback: Option<&'a str>,
}

/// Reported token counts; signed, because a script may demand negative counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedCounts {
    /// Input outside of any cache.
    pub(super) uncached: i64,
    /// Input read from a cache.
    pub(super) cache_read: i64,
    /// Input written to a cache.
    pub(super) cache_write: i64,
    /// Output without thinking.
    pub(super) spoken: i64,
    pub(super) thinking: i64,
}

impl ReportedCounts {
    /// The counts as `style` reports them; `None` for no usage.
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

/// One event of a stream, ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampleFrame {
    /// What the event means to the script.
    pub(super) kind: FrameKind,
    /// The bytes on the wire.
    pub(super) bytes: Bytes,
}

/// The kind of a frame, as far as scripts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Carries a piece of content.
    Delta,
    /// Marks the end of the answer, or comes after that.
    Final,
    Other,
}

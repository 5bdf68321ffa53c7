//! The types that all protocol modules share: the answer to render, the usage to report, and the events of a stream.

use bytes::Bytes;

use super::answer::ScriptedContent;
use super::script::UsageStyle;

/// A placeholder for the signature of thinking and for encrypted reasoning, in base64 as clients expect it.
pub(super) const SIGNATURE: &str = "c2FtcGxlLXByb3ZpZGVyIHNpZ25hdHVyZSwgbm90IGEgc2VjcmV0";

/// Everything that determines how an answer is rendered.
#[derive(Debug)]
pub(super) struct SampleReply<'a> {
    /// The unique part of every id in the body.
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    /// The time of the answer's creation, in seconds since the Unix epoch.
    pub(super) created_at: i64,
    pub(super) answer: &'a ScriptedContent,
    /// The usage to report; `None` to report none.
    pub(super) counts: Option<ReportedCounts>,
    /// The other models that work on the answer (Messages).
    pub(super) others: OtherModels<'a>,
    /// Whether the client requests encrypted reasoning (Responses).
    pub(super) encrypted_reasoning: bool,
    /// Whether the client requests the usage at the end of a stream (`chat/completions`). The other protocols always report it.
    pub(super) streams_usage: bool,
}

/// The models that work on an answer in addition to the requested one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherModels<'a> {
    /// The model that gives advice; `None` for no advisor.
    pub(super) advisor: Option<&'a str>,
    pub(super) fallback: Option<&'a str>,
}

/// The token counts that an answer reports. They are signed, because a script may demand negative counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedCounts {
    /// Input tokens outside of any cache.
    pub(super) uncached: i64,
    /// Input tokens read from a cache.
    pub(super) cache_read: i64,
    /// Input tokens written to a cache.
    pub(super) cache_write: i64,
    /// Output tokens without thinking.
    pub(super) spoken: i64,
    pub(super) thinking: i64,
}

impl ReportedCounts {
    /// Returns the counts as `style` reports them; `None` if it reports no usage.
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

    /// The number of all input tokens, whether cached or not.
    pub(super) fn input(&self) -> i64 {
        self.uncached
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// The number of all output tokens, including thinking.
    pub(super) fn output(&self) -> i64 {
        self.spoken.saturating_add(self.thinking)
    }
}

/// One event of a streamed answer, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampleFrame {
    /// The meaning of the event for scripts.
    pub(super) kind: FrameKind,
    /// The bytes on the wire.
    pub(super) bytes: Bytes,
}

/// The meaning of an event for scripts, which count deltas and interrupt streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The event carries a piece of content.
    Delta,
    /// The event marks the end of the answer, or comes after the end.
    Final,
    Other,
}

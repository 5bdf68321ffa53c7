//! The meter, which observes an answer while it passes to the client.

use std::{borrow::Cow, sync::OnceLock, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::End,
        wire::{
            UpstreamProtocol,
            protocol::{AnswerFraming, AnswerReport, Break, CreatedState, MessageBoundaries, Observer},
        },
    },
    gateway::coding::{MessageCoding, decoding::AnswerDecoder},
};

/// The content coding that an answer's head announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnnouncedCoding {
    /// No coding.
    #[default]
    Plain,
    /// A coding that weir decodes.
    Known,
    /// A coding that weir does not decode. The body is possibly uncompressed, because some servers announce a coding without
    /// applying it.
    Unknown,
}

/// The meter of one answer. It observes the usage, the first content and the completeness.
#[derive(Debug, Default)]
pub(crate) struct AnswerMeter {
    observer: Option<Observer>,
    /// Decodes the answer for the observer; `None` if the answer has no content coding that weir decodes.
    decoder: Option<Box<AnswerDecoder>>,
    /// The content coding that the head announces.
    announced: AnnouncedCoding,
    /// Whether an answer of this protocol ends with the event that completes it. If so, the usage is final once that event has
    /// arrived.
    ends_with_event: bool,
    pub(super) first_content: Option<Instant>,
    pub(super) response_bytes: u64,
    status: u16,
    ended: bool,
    /// The number of state identifiers that the answer contained at the most recent call of [`AnswerMeter::take_new_names`].
    names: u16,
    /// The observations, cached once they are final.
    final_observation: OnceLock<Box<AnswerReport>>,
}

impl AnswerMeter {
    /// Records the answer's head. `protocol` and `framing` determine the observer of the body. `coded` determines the decoder.
    pub(crate) fn on_head(
        &mut self,
        status: u16,
        protocol: impl Into<UpstreamProtocol>,
        framing: AnswerFraming,
        coded: &MessageCoding,
    ) {
        let protocol = protocol.into();
        self.status = status;
        self.ends_with_event = matches!(protocol, UpstreamProtocol::Messages | UpstreamProtocol::Responses);
        (self.announced, self.decoder, self.observer) = match coded {
            MessageCoding::No => (AnnouncedCoding::Plain, None, Some(Observer::new(protocol, framing))),
            // An error answer is buffered, and decoded at its end.
            MessageCoding::By(_) if status >= 400 => {
                (AnnouncedCoding::Known, None, Some(Observer::for_unreadable(protocol)))
            }
            MessageCoding::By(coding) => (
                AnnouncedCoding::Known,
                Some(Box::new(AnswerDecoder::new(*coding))),
                Some(Observer::new(protocol, framing)),
            ),
            MessageCoding::Otherwise(_) => (
                AnnouncedCoding::Unknown,
                None,
                Some(Observer::for_unknown_coding(protocol, framing)),
            ),
        };
    }

    /// Observes a piece of the answer's body. If the body is compressed, `decoded` is called with the decoded text and with the
    /// boundaries of the messages in that text.
    pub(crate) fn on_piece(&mut self, piece: &[u8], now: Instant, mut decoded: impl FnMut(&[u8], MessageBoundaries)) {
        self.response_bytes += piece.len() as u64;
        if let Some(observer) = &mut self.observer {
            match &mut self.decoder {
                Some(decoder) => decoder.push(piece, |text| {
                    observer.push(text);
                    decoded(text, observer.boundaries());
                }),
                None => observer.push(piece),
            }
            if self.first_content.is_none() && observer.first_content_seen() {
                self.first_content = Some(now);
            }
        }
    }

    /// Records that the provider has ended the body properly.
    pub(crate) fn on_end(&mut self) {
        self.ended = true;
    }

    /// Whether the answer is complete according to its protocol. An error answer always counts as complete. An unreadable answer
    /// does, too, because weir cannot learn more about it.
    pub(crate) fn is_complete(&self) -> bool {
        self.status >= 400 || !self.is_readable() || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether weir can read the answer.
    fn is_readable(&self) -> bool {
        !self.is_undecodable() && self.framing() != Some(AnswerFraming::Opaque)
    }

    /// Whether weir cannot read the answer because of its content coding.
    pub(crate) fn is_undecodable(&self) -> bool {
        let is_broken = self.decoder.as_ref().is_some_and(|decoder| !decoder.is_readable());
        is_broken || self.announced == AnnouncedCoding::Unknown && self.is_compressed()
    }

    /// Records that weir replaces the provider's HTTP status with this one for the client.
    pub(crate) fn replace_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Discards all observations, because the client gets nothing of the provider's answer.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    /// Whether weir can learn nothing more about the answer. An unreadable answer is final only at its end.
    pub(crate) fn is_final(&self) -> bool {
        let is_last_event = || {
            self.ends_with_event
                && self.framing() == Some(AnswerFraming::Sse)
                && self.is_readable()
                && self.observer.as_ref().is_some_and(Observer::is_complete)
        };
        self.ended || is_last_event()
    }

    /// Whether the answer is complete and final.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_final() && self.is_complete()
    }

    /// Whether the answer's bytes are compressed, so that weir cannot add bytes of its own.
    pub(crate) fn is_compressed(&self) -> bool {
        match self.announced {
            AnnouncedCoding::Plain => false,
            AnnouncedCoding::Known => true,
            AnnouncedCoding::Unknown => self.framing() == Some(AnswerFraming::Opaque),
        }
    }

    /// Returns the boundaries of the messages in the most recent piece of an uncompressed body.
    pub(crate) fn boundaries(&self) -> MessageBoundaries {
        self.observer.as_ref().map(Observer::boundaries).unwrap_or_default()
    }

    /// Returns the bytes that are missing at the end of a complete stream (see [`Observer::done_marker_tail`]); `None` if none
    /// are missing or the stream is compressed.
    pub(crate) fn closing(&self) -> Option<Vec<u8>> {
        self.observer
            .as_ref()
            .filter(|_| !self.is_compressed())?
            .done_marker_tail()
    }

    /// The framing of the body. At first, it is the framing that the head announces. Once the first bytes of the body have
    /// arrived, they determine it. `None` before the head.
    pub(crate) fn framing(&self) -> Option<AnswerFraming> {
        self.observer.as_ref().map(Observer::framing)
    }

    /// Whether the first bytes of the body, which determine its framing, have arrived.
    pub(crate) fn is_framing_known(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::is_framing_known)
    }

    /// Whether the first event or element of the body has arrived (see [`Observer::has_begun`]).
    pub(crate) fn has_begun(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::has_begun)
    }

    /// The answer's status; 0 before its head.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns the in-band error that informs the client of a failure in the middle of the answer; `None` if the protocol has no
    /// such error or the answer is compressed.
    pub(crate) fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        self.observer
            .as_ref()
            .filter(|_| !self.is_compressed())?
            .failure_tail(why)
    }

    /// The estimated number of output tokens so far, from the answer's text and before calibration.
    pub(crate) fn output_estimate(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::output_estimate)
    }

    /// The number of events that contain more than text (see [`Observer::reports`]).
    pub(crate) fn reports(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::reports)
    }

    /// Whether the answer has already named all of its provider state. A non-streaming body counts as complete once its last
    /// brace has arrived, even if the HTTP framing has not ended yet.
    pub(crate) fn has_named_all(&self) -> bool {
        let is_whole_body =
            || self.framing() == Some(AnswerFraming::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// Whether the answer has named more provider state since the last call (see [`Observer::state_name_count`]).
    pub(crate) fn take_new_names(&mut self) -> bool {
        let names = self.observer.as_ref().map_or(0, Observer::state_name_count);
        std::mem::replace(&mut self.names, names) != names
    }

    /// The identifier under which the provider may store the answer; `None` if the answer has none.
    pub(crate) fn answer_id(&self) -> Option<SmolStr> {
        self.observer.as_ref()?.answer_id()
    }

    /// The state that the answer has created at the provider.
    pub(crate) fn created_state(&self) -> Option<Cow<'_, CreatedState>> {
        self.observer.as_ref().map(Observer::created_state)
    }

    /// Returns all observations so far: usage, finish reason, in-band error and more; `None` before the head. They are cached
    /// once nothing can change them, because they are read several times.
    pub(crate) fn observed(&self) -> Option<Cow<'_, AnswerReport>> {
        let observer = self.observer.as_ref()?;
        if !self.has_named_all() {
            return Some(Cow::Owned(observer.observed()));
        }
        let kept = self.final_observation.get_or_init(|| Box::new(observer.observed()));
        Some(Cow::Borrowed(kept))
    }

    /// Returns how the answer ended. Ignores a failure that the answer itself reports.
    pub(crate) fn observed_end(&self) -> End {
        if !self.ended {
            End::ClientLeft
        } else if self.is_complete() {
            End::Complete
        } else {
            End::Broken(Break::ProviderEnded)
        }
    }

    /// Returns the failure that the answer itself reports, by its status or in band; `None` if it reports none.
    pub(crate) fn reported_failure(&self) -> Option<End> {
        if self.status >= 400 {
            return Some(End::ProviderError);
        }
        let observed = self.observed()?;
        observed.in_band_error.as_ref().map(|_| End::InBandError)
    }
}

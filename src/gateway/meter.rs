//! The meter: observes an answer while it passes.

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
    /// None.
    #[default]
    Plain,
    /// One that weir decodes.
    Known,
    /// One that weir does not decode. The answer may not have it: some servers announce a coding without applying it.
    Unknown,
}

/// Observes one answer: usage, first content, completeness.
#[derive(Debug, Default)]
pub(crate) struct AnswerMeter {
    observer: Option<Observer>,
    /// Decodes for the observer, if the answer has a content coding.
    decoder: Option<Box<AnswerDecoder>>,
    /// The content coding that the head announces.
    announced: AnnouncedCoding,
    /// Whether an answer of this protocol ends with the event that completes it, so that its usage is final then.
    ends_with_event: bool,
    pub(super) first_content: Option<Instant>,
    pub(super) response_bytes: u64,
    status: u16,
    ended: bool,
    /// The number of names of state at the last call of [`AnswerMeter::take_new_names`].
    names: u16,
    /// The observation, once it is final.
    final_observation: OnceLock<Box<AnswerReport>>,
}

impl AnswerMeter {
    /// The answer's head has arrived. `protocol` and `framing` choose the observer of its body, `coded` the decoder.
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

    /// Observes a piece of the answer's body. `decoded` gets the text of a compressed one, and how it divides into messages.
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

    /// The provider has ended the body properly.
    pub(crate) fn on_end(&mut self) {
        self.ended = true;
    }

    /// Whether the answer is complete by its protocol. An error answer always is, and so is an unreadable one, because nothing
    /// else is known of it.
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

    /// Records that weir answers with this status instead of the provider.
    pub(crate) fn replace_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Forgets all observations: the client gets nothing of the provider's answer.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing more can be learnt about the answer. An unreadable one is final only at its end.
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

    /// Whether the answer's bytes are compressed, so that weir cannot add its own.
    pub(crate) fn is_compressed(&self) -> bool {
        match self.announced {
            AnnouncedCoding::Plain => false,
            AnnouncedCoding::Known => true,
            AnnouncedCoding::Unknown => self.framing() == Some(AnswerFraming::Opaque),
        }
    }

    /// How the last piece of a body that is not compressed divides into messages.
    pub(crate) fn boundaries(&self) -> MessageBoundaries {
        self.observer.as_ref().map(Observer::boundaries).unwrap_or_default()
    }

    /// The bytes that a complete stream still lacks (see [`Observer::done_marker_tail`]). `None` for a compressed one.
    pub(crate) fn closing(&self) -> Option<Vec<u8>> {
        self.observer
            .as_ref()
            .filter(|_| !self.is_compressed())?
            .done_marker_tail()
    }

    /// How the body is framed: by its first bytes, or before them by its head; `None` before the head.
    pub(crate) fn framing(&self) -> Option<AnswerFraming> {
        self.observer.as_ref().map(Observer::framing)
    }

    /// Whether the first bytes that decide the body's framing have arrived.
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

    /// The in-band error that tells the client of a failure in the middle of the answer; `None` if the protocol has none.
    pub(crate) fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        self.observer
            .as_ref()
            .filter(|_| !self.is_compressed())?
            .failure_tail(why)
    }

    /// The estimated tokens of the text so far, before calibration.
    pub(crate) fn output_estimate(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::output_estimate)
    }

    /// The number of events with more than text (see [`Observer::reports`]).
    pub(crate) fn reports(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::reports)
    }

    /// Whether the answer can name no further state. A body in one piece is complete with its last brace, even before
    /// the end of its framing.
    pub(crate) fn has_named_all(&self) -> bool {
        let is_whole_body =
            || self.framing() == Some(AnswerFraming::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// Whether the answer has named more state since the last call (see [`Observer::state_name_count`]).
    pub(crate) fn take_new_names(&mut self) -> bool {
        let names = self.observer.as_ref().map_or(0, Observer::state_name_count);
        std::mem::replace(&mut self.names, names) != names
    }

    /// The identifier under which the provider may keep the answer.
    pub(crate) fn answer_id(&self) -> Option<SmolStr> {
        self.observer.as_ref()?.answer_id()
    }

    /// The state that the answer has created at the provider.
    pub(crate) fn created_state(&self) -> Option<Cow<'_, CreatedState>> {
        self.observer.as_ref().map(Observer::created_state)
    }

    /// All observations so far: usage, finish reason, in-band error and more. Cached once nothing can change them, because they
    /// are read several times.
    pub(crate) fn observed(&self) -> Option<Cow<'_, AnswerReport>> {
        let observer = self.observer.as_ref()?;
        if !self.has_named_all() {
            return Some(Cow::Owned(observer.observed()));
        }
        let kept = self.final_observation.get_or_init(|| Box::new(observer.observed()));
        Some(Cow::Borrowed(kept))
    }

    /// The end of the answer, apart from a failure that it reports.
    pub(crate) fn observed_end(&self) -> End {
        if !self.ended {
            End::ClientLeft
        } else if self.is_complete() {
            End::Complete
        } else {
            End::Broken(Break::ProviderEnded)
        }
    }

    /// The failure that the answer itself reports, by status or in band.
    pub(crate) fn reported_failure(&self) -> Option<End> {
        if self.status >= 400 {
            return Some(End::ProviderError);
        }
        let observed = self.observed()?;
        observed.in_band_error.as_ref().map(|_| End::InBandError)
    }
}

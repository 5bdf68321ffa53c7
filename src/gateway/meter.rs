//! What is observed of an answer while it passes.

use std::{borrow::Cow, sync::OnceLock, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::outcome::Outcome,
        wire::protocol::{Framing, Made, MidStreamFailure, Observed, Observer, Protocol},
    },
    gateway::coding::{Coded, answer_decoder::AnswerDecoder},
};

/// What has been observed of the answer so far.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    observer: Option<Observer>,
    /// Decodes for the observer, if the answer has a content coding.
    decoder: Option<AnswerDecoder>,
    /// The answer's bytes are compressed, so weir cannot add any of its own.
    is_coded: bool,
    /// The event that completes the answer is also its last, so the usage is final then.
    ends_with_event: bool,
    framing: Option<Framing>,
    pub(super) first_content: Option<Instant>,
    pub(super) response_bytes: u64,
    status: u16,
    ended: bool,
    /// The observation, once it is final.
    last_word: OnceLock<Observed>,
}

impl Meter {
    /// The answer's head has arrived. `protocol` and `framing` choose the observer of its body, `coded` the decoder.
    pub(crate) fn head_seen(&mut self, status: u16, protocol: Protocol, framing: Framing, coded: &Coded) {
        self.status = status;
        self.framing = Some(framing);
        self.is_coded = *coded != Coded::No;
        self.ends_with_event = framing == Framing::Sse && protocol != Protocol::Gemini;
        // An error answer is buffered, and decoded at its end.
        self.decoder = match coded {
            Coded::By(coding) if status < 400 && framing != Framing::Opaque => Some(AnswerDecoder::new(*coding)),
            Coded::No | Coded::By(_) | Coded::Otherwise(_) => None,
        };
        let observed = match (self.is_coded, &self.decoder) {
            (true, None) => Framing::Opaque,
            (true, Some(_)) | (false, _) => framing,
        };
        self.observer = Some(Observer::new(protocol, observed));
    }

    /// Observes a piece of the answer's body.
    pub(crate) fn body_seen(&mut self, piece: &[u8], now: Instant) {
        self.response_bytes += piece.len() as u64;
        if let Some(observer) = &mut self.observer {
            match &mut self.decoder {
                Some(decoder) => decoder.push(piece, |text| observer.push(text)),
                None => observer.push(piece),
            }
            if self.first_content.is_none() && observer.first_content_seen() {
                self.first_content = Some(now);
            }
        }
    }

    /// The provider has ended the body properly.
    pub(crate) fn body_ended(&mut self) {
        self.ended = true;
    }

    /// Whether the answer is complete by its protocol. An error answer always is, and so is one that cannot be decoded,
    /// because nothing better is known.
    pub(crate) fn is_complete(&self) -> bool {
        let unreadable = self.decoder.as_ref().is_some_and(|decoder| !decoder.is_readable());
        self.status >= 400 || unreadable || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether the provider has ended the body properly.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// weir answers with this status instead of the provider.
    pub(crate) fn replaced_by(&mut self, status: u16) {
        self.status = status;
    }

    /// Whether nothing more can be learnt about the answer.
    pub(crate) fn is_final(&self) -> bool {
        self.ended || self.ends_with_event && self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether the answer is complete and nothing more can be learnt about it.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_final() && self.is_complete()
    }

    /// Whether the answer's bytes are compressed.
    pub(crate) fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// The bytes that a complete stream still lacks (see [`Observer::closing`]). `None` for a compressed one.
    pub(crate) fn closing(&self) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded)?.closing()
    }

    /// How the body is framed; `None` before the head.
    pub(crate) fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// The answer's status; 0 before its head.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The in-band error that tells the client of a failure in the middle of the answer. `None` if the protocol has
    /// none.
    pub(crate) fn failure_tail(&self, failure: &MidStreamFailure) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded)?.failure_tail(failure)
    }

    /// The estimated tokens of the text so far, before calibration.
    pub(crate) fn output_estimate(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::output_estimate)
    }

    /// How many events have said more than text (see [`Observer::reports`]).
    pub(crate) fn reports(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::reports)
    }

    /// Whether the answer can name no further state. A body in one piece is complete with its last brace, even before
    /// the end of its framing.
    pub(crate) fn has_named_all(&self) -> bool {
        let is_whole_body =
            || self.framing == Some(Framing::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// How many names of state have been seen (see [`Observer::names`]).
    pub(crate) fn names(&self) -> usize {
        self.observer.as_ref().map_or(0, Observer::names)
    }

    /// The identifier under which the provider may keep the answer.
    pub(crate) fn answer_id(&self) -> Option<SmolStr> {
        self.observer.as_ref()?.answer_id()
    }

    /// The state that the answer has created at the provider.
    pub(crate) fn made(&self) -> Option<Cow<'_, Made>> {
        self.observer.as_ref().map(Observer::made)
    }

    /// All that has been observed so far: usage, finish reason, in-band error and more.
    pub(crate) fn observed(&self) -> Option<Cow<'_, Observed>> {
        let observer = self.observer.as_ref()?;
        if !self.is_final() {
            return Some(Cow::Owned(observer.observed()));
        }
        // Cached: it is read several times, and computing it parses a body in one piece.
        Some(Cow::Borrowed(self.last_word.get_or_init(|| observer.observed())))
    }

    /// The failure that the answer itself reports, by status or in band.
    pub(crate) fn reported_failure(&self) -> Option<Outcome> {
        if self.status >= 400 {
            return Some(Outcome::ProviderError);
        }
        let observed = self.observed()?;
        observed.in_band_error.as_ref().map(|_| Outcome::InBandError)
    }
}

//! What is observed of an answer while it passes.

use std::{borrow::Cow, sync::OnceLock, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::end::End,
        wire::protocol::{Boundaries, Break, Framing, Made, Observed, Observer, Protocol},
    },
    gateway::coding::{Coded, answer_decoder::AnswerDecoder},
};

/// What an answer's head says of its content coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Announced {
    /// None.
    #[default]
    Plain,
    /// One that weir decodes.
    Known,
    /// One that weir does not decode, if the answer has it: some servers announce one without applying it.
    Unknown,
}

/// What has been observed of the answer so far.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    observer: Option<Observer>,
    /// Decodes for the observer, if the answer has a content coding.
    decoder: Option<Box<AnswerDecoder>>,
    /// The content coding that the head announces.
    announced: Announced,
    /// The event that completes an answer of this protocol is also its last, so the usage is final then.
    ends_with_event: bool,
    pub(super) first_content: Option<Instant>,
    pub(super) response_bytes: u64,
    status: u16,
    ended: bool,
    /// How many names of state have been told of by [`Meter::takes_new_names`].
    names: u16,
    /// The observation, once it is final.
    last_word: OnceLock<Box<Observed>>,
}

impl Meter {
    /// The answer's head has arrived. `protocol` and `framing` choose the observer of its body, `coded` the decoder.
    pub(crate) fn head_seen(&mut self, status: u16, protocol: Protocol, framing: Framing, coded: &Coded) {
        self.status = status;
        self.ends_with_event = protocol != Protocol::Gemini;
        (self.announced, self.decoder, self.observer) = match coded {
            Coded::No => (Announced::Plain, None, Some(Observer::new(protocol, framing))),
            // An error answer is buffered, and decoded at its end.
            Coded::By(_) if status >= 400 => (Announced::Known, None, Some(Observer::of_unreadable(protocol))),
            Coded::By(coding) => (
                Announced::Known,
                Some(Box::new(AnswerDecoder::new(*coding))),
                Some(Observer::new(protocol, framing)),
            ),
            Coded::Otherwise(_) => (
                Announced::Unknown,
                None,
                Some(Observer::of_unknown_coding(protocol, framing)),
            ),
        };
    }

    /// Observes a piece of the answer's body. `decoded` sees what a compressed one says, and how that divides into messages.
    pub(crate) fn body_seen(&mut self, piece: &[u8], now: Instant, mut decoded: impl FnMut(&[u8], Boundaries)) {
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
    pub(crate) fn body_ended(&mut self) {
        self.ended = true;
    }

    /// Whether the answer is complete by its protocol. An error answer always is, and so is one that cannot be read, because
    /// nothing better is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.status >= 400 || !self.is_readable() || self.observer.as_ref().is_some_and(Observer::is_complete)
    }

    /// Whether weir can read the answer.
    fn is_readable(&self) -> bool {
        !self.is_undecodable() && self.framing() != Some(Framing::Opaque)
    }

    /// Whether weir cannot read the answer because of its content coding.
    pub(crate) fn is_undecodable(&self) -> bool {
        let is_broken = self.decoder.as_ref().is_some_and(|decoder| !decoder.is_readable());
        is_broken || self.announced == Announced::Unknown && self.is_coded()
    }

    /// weir answers with this status instead of the provider.
    pub(crate) fn replaced_by(&mut self, status: u16) {
        self.status = status;
    }

    /// The client gets nothing of the provider's answer: what was observed of it is forgotten.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing more can be learnt about the answer. One that cannot be read is final only at its end.
    pub(crate) fn is_final(&self) -> bool {
        let is_last_event = || {
            self.ends_with_event
                && self.framing() == Some(Framing::Sse)
                && self.is_readable()
                && self.observer.as_ref().is_some_and(Observer::is_complete)
        };
        self.ended || is_last_event()
    }

    /// Whether the answer is complete and nothing more can be learnt about it.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_final() && self.is_complete()
    }

    /// Whether the answer's bytes are compressed, so that weir cannot add any of its own.
    pub(crate) fn is_coded(&self) -> bool {
        match self.announced {
            Announced::Plain => false,
            Announced::Known => true,
            Announced::Unknown => self.framing() == Some(Framing::Opaque),
        }
    }

    /// How the last piece of a body that is not compressed divides into messages.
    pub(crate) fn boundaries(&self) -> Boundaries {
        self.observer.as_ref().map(Observer::boundaries).unwrap_or_default()
    }

    /// The bytes that a complete stream still lacks (see [`Observer::closing`]). `None` for a compressed one.
    pub(crate) fn closing(&self) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded())?.closing()
    }

    /// How the body is framed, as its first bytes tell, or before them its head; `None` before the head.
    pub(crate) fn framing(&self) -> Option<Framing> {
        self.observer.as_ref().map(Observer::framing)
    }

    /// Whether the first bytes of the body that mean something have arrived.
    pub(crate) fn is_framing_known(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::is_framing_known)
    }

    /// Whether the first event or element of a body that consists of them has arrived (see [`Observer::has_begun`]).
    pub(crate) fn has_begun(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::has_begun)
    }

    /// The answer's status; 0 before its head.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The in-band error that tells the client of a failure in the middle of the answer. `None` if the protocol has
    /// none.
    pub(crate) fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        self.observer.as_ref().filter(|_| !self.is_coded())?.failure_tail(why)
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
            || self.framing() == Some(Framing::Json) && self.observer.as_ref().is_some_and(Observer::is_complete);
        self.is_final() || is_whole_body()
    }

    /// Whether the answer has named more state (see [`Observer::names`]) than at the last call.
    pub(crate) fn takes_new_names(&mut self) -> bool {
        let names = self.observer.as_ref().map_or(0, Observer::names);
        std::mem::replace(&mut self.names, names) != names
    }

    /// The identifier under which the provider may keep the answer.
    pub(crate) fn answer_id(&self) -> Option<SmolStr> {
        self.observer.as_ref()?.answer_id()
    }

    /// The state that the answer has created at the provider.
    pub(crate) fn made(&self) -> Option<Cow<'_, Made>> {
        self.observer.as_ref().map(Observer::made)
    }

    /// All that has been observed so far: usage, finish reason, in-band error and more. It is read several times, and kept once
    /// nothing can change it.
    pub(crate) fn observed(&self) -> Option<Cow<'_, Observed>> {
        let observer = self.observer.as_ref()?;
        if !self.has_named_all() {
            return Some(Cow::Owned(observer.observed()));
        }
        let kept = self.last_word.get_or_init(|| Box::new(observer.observed()));
        Some(Cow::Borrowed(kept))
    }

    /// The end of the answer as far as it came, apart from a failure that it reports.
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

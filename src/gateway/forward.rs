//! An admitted request on its way to a provider, and the answer on its way back.

use std::{sync::Arc, time::Instant};

use http::HeaderMap;
use pingora::{Error, ErrorType};
use pingora_proxy::Session;
use tokio::sync::Semaphore;

use crate::{
    domain::{
        faults::{End, refusal::Refusal},
        ledger::consumption::RowTranslation,
        rules::Provider,
        wire::protocol::{self, Break, ErrorForm},
    },
    gateway::{
        attempt::{Attempt, Verdict, attempts::AttemptPlan},
        client::Client,
        log_entry::LogEntry,
        meter::AnswerMeter,
        outlet::{Masking, Outlet, UnbegunAnswer},
        request::{
            Request,
            body::RequestBody,
            translation::{self, RequestTranslation},
        },
        ticket::Ticket,
    },
    providers::sessions::StateRegistry,
    telemetry::metrics::Metrics,
};

/// An admitted request.
///
/// The data that is used for every piece of an answer comes first; it ends with the first field of `ticket`. When many streams
/// run, this data has to be loaded from memory for every piece. The other fields follow it or are boxed.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Forward {
    /// Observes the current attempt's answer.
    pub meter: AnswerMeter,
    /// The way in which the answer's body reaches the client.
    pub outlet: Outlet,
    /// The current answer, if it is a success of which the client has received nothing yet; `None` otherwise.
    pub unbegun: Option<Box<UnbegunAnswer>>,
    /// Masks the credential in errors within the answer's body.
    pub masking: Masking,
    /// The client of the request.
    pub client: Client,
    /// The current attempt.
    pub attempt: Attempt,
    /// The right to forward the request, and the duty to charge it.
    pub ticket: Ticket,
    /// Chooses the provider, credential and backend of each attempt.
    pub attempts: AttemptPlan,
    /// The request's body; `None` once no further attempt can follow.
    pub body: Option<RequestBody>,
    /// The client's request.
    pub request: Request,
}

impl Forward {
    /// Creates a request that has not been sent yet.
    pub(crate) fn new(
        request: Request,
        attempts: AttemptPlan,
        body: RequestBody,
        ticket: Ticket,
        client: Client,
    ) -> Box<Self> {
        Box::new(Self {
            meter: AnswerMeter::default(),
            outlet: Outlet::default(),
            unbegun: None,
            masking: Masking::default(),
            client,
            attempt: Attempt::default(),
            ticket,
            attempts,
            body: Some(body),
            request,
        })
    }

    /// Connects the request to its client's connection. The request may be forwarded from now on.
    pub(crate) fn connect_client(&mut self, session: &mut Session, finishing: &Arc<Semaphore>, metrics: &Arc<Metrics>) {
        let Self {
            client,
            request,
            attempts,
            ..
        } = self;
        client.connect(session, (finishing, metrics), request, &attempts.endpoint().provider);
    }

    /// Begins an attempt at the current endpoint. Discards the observations of an earlier attempt.
    pub(crate) fn begin_attempt(&mut self) {
        self.ticket.begin_attempt(self.attempts.index());
        self.meter = AnswerMeter::default();
    }

    /// Edits the body for the current provider, unless that has been done.
    ///
    /// # Errors
    /// Returns the refusal if the body cannot be edited for the provider.
    pub(crate) fn edit_body(&mut self, headers: &HeaderMap) -> Result<(), Refusal> {
        let body = self.body.as_mut().ok_or(Refusal::Internal)?;
        let (index, endpoint) = (self.attempts.index(), self.attempts.endpoint());
        let maker = translation::maker(endpoint, &self.attempts.credential().credential.name);
        if body.is_edited_for(index, maker.as_ref()) {
            return Ok(());
        }
        body.restore()?;
        let translated = match (maker, &endpoint.translation) {
            (Some(maker), Some(translation)) => {
                let (model, stream) = (&self.request.model, self.request.stream);
                let translation = translation::tightened(translation, headers);
                let parties = (maker, &*translation);
                Some(RequestTranslation::translate(
                    endpoint,
                    parties,
                    (model, stream),
                    &body.bytes,
                )?)
            }
            (_, None) | (None, Some(_)) => None,
        };
        let facts = self.request.facts(headers, endpoint);
        body.edit_for(index, &endpoint.provider.body, (&facts, &self.request.scan), translated)
    }

    /// The current provider.
    pub(crate) fn provider(&self) -> &Provider {
        &self.attempts.endpoint().provider
    }

    /// The form in which the client gets errors of the current provider.
    pub(crate) fn error_form(&self) -> ErrorForm {
        self.provider().error_form(self.request.operation.protocol())
    }

    /// Whether a further attempt can send the body again.
    pub(crate) fn can_resend(&self) -> bool {
        self.body.as_ref().is_some_and(RequestBody::can_resend)
    }

    /// Ends the attempt with a refusal for the client. `context` only documents the code: it is not logged, because Pingora's log
    /// is off.
    pub(crate) fn refuse(&mut self, refusal: Refusal, etype: ErrorType, context: &'static str) -> Box<Error> {
        self.attempt.verdict = Verdict::Refuse(refusal);
        Error::explain(etype, context)
    }

    /// Ends the attempt because the provider's answer cannot be passed on to the client.
    pub(crate) fn refuse_answer(&mut self) -> Box<Error> {
        let context = "the answer cannot be passed on";
        self.refuse(Refusal::ProviderBroken, ErrorType::InvalidHTTPHeader, context)
            .into_up()
    }

    /// Whether the current answer is a success of which the client has received nothing yet.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.unbegun.is_some() && self.client.write_gate.head.is_waiting()
    }

    /// Discards the current answer. The client gets nothing of it.
    pub(crate) fn abandon_answer(&mut self) {
        self.unbegun = None;
        self.masking = Masking::default();
        self.outlet = Outlet::default();
        self.client.write_gate.head.take();
        self.meter.discard();
    }

    /// Frees the memory that only a further attempt would need. Called once no attempt can follow.
    pub(crate) fn free_body(&mut self) {
        self.body = None;
        self.request.scan.tape.clear();
    }

    /// Returns the buffered bytes of an answer that breaks off, with the credential masked.
    pub(crate) fn remaining(&mut self) -> Vec<u8> {
        let masked = self.masking.remaining(self.attempts.secret());
        self.outlet.remaining(masked)
    }

    /// Whether the provider at the current endpoint speaks a different protocol from the client.
    pub(crate) fn is_translated(&self) -> bool {
        self.attempts.endpoint().translation.is_some()
    }

    /// Returns the in-band error that informs the client of a failure in the middle of the answer; `None` if this form of answer
    /// has no in-band error.
    pub(crate) fn failure_tail(&mut self, why: Break) -> Option<Vec<u8>> {
        match &mut self.outlet {
            Outlet::Translate(answer) => answer.failure_tail(why),
            Outlet::Pass
            | Outlet::Rewrite(_)
            | Outlet::PossibleError(_)
            | Outlet::Withheld(_)
            | Outlet::ErrorReply(_) => self.meter.failure_tail(why),
        }
    }

    /// Whether the answer is complete according to its protocol, and its translation, if any, is complete, too.
    pub(crate) fn has_complete_answer(&self) -> bool {
        let is_translated = match &self.outlet {
            Outlet::Translate(answer) => answer.is_complete(),
            Outlet::Pass
            | Outlet::Rewrite(_)
            | Outlet::PossibleError(_)
            | Outlet::Withheld(_)
            | Outlet::ErrorReply(_) => true,
        };
        is_translated && self.meter.is_complete()
    }

    /// Returns the part of a complete answer that the client has not received because the connection to the provider broke;
    /// `None` if the answer's translation is not complete.
    pub(crate) fn rest_of_complete(&mut self) -> Option<Vec<u8>> {
        if let Outlet::Translate(answer) = &mut self.outlet {
            return answer.remaining_bytes(&self.ticket.billed_usage(&self.meter));
        }
        let closing = self.meter.closing();
        let mut rest = self.remaining();
        rest.extend(closing.unwrap_or_default());
        Some(rest)
    }

    /// The translation of the request at the current endpoint; `None` if the provider speaks the client's protocol.
    pub(crate) fn translation(&self) -> Option<&RequestTranslation> {
        match &self.outlet {
            Outlet::Translate(answer) => Some(answer.request()),
            Outlet::Pass
            | Outlet::Rewrite(_)
            | Outlet::PossibleError(_)
            | Outlet::Withheld(_)
            | Outlet::ErrorReply(_) => self.body.as_ref()?.translation().map(AsRef::as_ref),
        }
    }

    /// Called before a piece of the answer, or its end, goes to the client. Records the provider state that the answer has
    /// created.
    pub(crate) fn record_state(&mut self, sessions: &StateRegistry, end: bool) {
        if matches!(self.outlet, Outlet::Translate(_)) {
            // The client does not get the names of the provider's state, so no request can name it.
            return;
        }
        let is_last = end || self.meter.has_named_all();
        if self.meter.take_new_names() && !is_last {
            self.client.record_state(sessions, &self.attempts, &self.meter);
        } else if is_last {
            let write_limit = self.request.live.config.gateway.write;
            self.client
                .record_last(sessions, &self.attempts, &self.meter, write_limit);
        }
    }

    /// Called with each piece of the answer. Updates the bill from time to time.
    pub(crate) fn sample(&mut self, now: Instant) {
        self.ticket.sample(&self.meter, now);
    }

    /// If the client disconnected before the answer was complete, decides how the request ends.
    pub(crate) fn check_client(&mut self) {
        if self.client.has_left() && !self.meter.is_complete() {
            self.decide_client_left();
        }
    }

    /// Decides how the request of a disconnected client ends. If the provider has already reported a failure, the request ends
    /// with that failure. Otherwise, the end says that the client has left.
    pub(crate) fn decide_client_left(&mut self) {
        let end = self.meter.reported_failure().unwrap_or(End::ClientLeft);
        self.decide(end);
    }

    /// Decides how the request ends. Later calls have no effect.
    pub(crate) fn decide(&mut self, end: End) {
        let status = match &end {
            End::Refused(refusal) => Some(refusal.status()),
            _ => None,
        };
        if self.ticket.decide(end)
            && let Some(status) = status
        {
            self.meter.replace_status(status);
        }
    }

    /// Returns how the request ends: as decided, or else as observed by the meter. The row records this end at the settlement.
    /// The access log records the end later, when the request is over. If the client disconnects after the last event of a
    /// complete answer, only the access log says `client_gone`.
    pub(crate) fn end(&self) -> End {
        self.ticket.end(&self.meter)
    }

    /// Charges the request; later calls do nothing. Called before the client gets the last bytes, so that the hold and the
    /// concurrency slot are free for the client's next request.
    pub(crate) fn settle(&mut self) {
        if self.ticket.has_open_bill() {
            let translation = self.row_translation();
            self.ticket.settle(&self.meter, translation);
        }
    }

    /// Returns the translation as the request's row records it; `None` if the request was not translated.
    fn row_translation(&self) -> Option<RowTranslation> {
        let translation = self.translation()?;
        let losses = self.losses(translation);
        Some(RowTranslation::new(
            &translation.label(),
            losses,
            translation.omitted_losses(),
        ))
    }

    /// Returns one text for each known loss of the translation, in the request and in the answer so far. The text names the
    /// verdict on the loss, for example `dropped`, and the path of the lost content.
    fn losses(&self, translation: &RequestTranslation) -> Vec<String> {
        let mut losses: Vec<String> = translation.known_losses().collect();
        if let Outlet::Translate(answer) = &self.outlet {
            let lost = answer.lost().iter();
            losses.extend(lost.map(|content| format!("dropped answer.{content}")));
        }
        losses
    }

    /// Ends the request: records the provider state that the answer has created, settles the request, and closes its line in the
    /// access log.
    pub(crate) fn finish(&mut self, sessions: &StateRegistry, log: &mut LogEntry) {
        if !self.is_translated() {
            self.client.record_rest(sessions, &self.attempts, &self.meter);
        }
        self.close(log);
        self.client.close(self.meter.is_complete());
    }

    /// Settles the request and closes its line in the access log.
    pub(crate) fn close(&mut self, log: &mut LogEntry) {
        self.settle();
        if log.is_closed() {
            return;
        }
        let progress = self.ticket.progress(&self.meter, log.started);
        let endpoint = self.ticket.endpoint();
        log.endpoint = endpoint.and_then(|index| self.attempts.endpoint_at(index)).cloned();
        if let Some(translation) = self.translation() {
            log.record.translated = Some(translation.label().into());
            log.record.losses = self.losses(translation);
            log.count_losses(translation.counts());
        }
        if let Outlet::Translate(answer) = &self.outlet {
            log.count_losses(answer.lost_counts());
        }
        let record = &mut log.record;
        record.attempts = progress.attempts;
        record.provider = log.endpoint.as_ref().map(|endpoint| endpoint.priced.provider.clone());
        record.status = progress.status;
        record.response_bytes = self.meter.response_bytes;
        record.ttft_ms = progress.ttft_ms;
        if let Some(observed) = self.meter.observed() {
            record.usage = observed.usage;
            record.finish_reason = observed.finish_reason.as_deref().map(protocol::known_or_other);
        }
        log.close(&self.end());
    }
}

/// Returns the end of a request that was dropped before it ended: a hook panicked, or the process stops.
pub(crate) fn end_of_dropped() -> End {
    End::Broken(match std::thread::panicking() {
        true => Break::Internal,
        false => Break::Stopped,
    })
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.decide(end_of_dropped());
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The number of bytes in a processor's cache line.
    const LINE: usize = 64;

    #[test]
    fn what_a_piece_of_an_answer_touches_lies_in_a_few_cache_lines_in_a_row() {
        assert_eq!(align_of::<Forward>(), LINE);
        assert_eq!(offset_of!(Forward, meter), 0);
        // The meter contains the observer's state and the counters.
        assert!(size_of::<AnswerMeter>() <= 4 * LINE, "{}", size_of::<AnswerMeter>());
        let front = offset_of!(Forward, ticket) + Ticket::NEXT_LOOK_END;
        assert!(front <= 9 * LINE, "{front}");
        // The outlet's variant says whether the body passes unchanged. If it does, nothing else of these fields is read.
        assert!(size_of::<Outlet>() <= 2 * size_of::<usize>());
        assert!(
            offset_of!(Forward, client) <= 6 * LINE,
            "{}",
            offset_of!(Forward, client)
        );
    }
}

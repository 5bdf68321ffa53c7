//! State at a provider: looks up the state that a request names, and records the state that an answer creates. The state is
//! recorded for the request's account while the answer passes, before the client gets the answer's end.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::KeyRecord,
        ledger::ProviderState,
        wire::{
            json_scan::{Reference, Scan},
            provider_state::{StateId, StateKey, StateKind},
            session_hint::{ServedBy, SessionHint},
        },
    },
    gateway::{attempt::attempts::AttemptPlan, held_head::HeldHead, meter::AnswerMeter},
    money::billing::{Bill, Billing},
    providers::{
        Route,
        sessions::{FoundStates, PendingWrites, StateRegistry, WriteCompletion},
    },
};

/// The maximum time for which the end of an answer is delayed while the state that the answer has created is being stored. It
/// equals the store's timeout. After that time, the store counts as failing, and no answer waits for it.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The provider state that a request names, with the registry's result for each item.
#[derive(Debug, Default)]
pub(crate) struct NamedState<'s> {
    references: Vec<(&'s Reference, StateKey)>,
    found: FoundStates,
}

/// Looks up the provider state that a request of this account names. Calls the store at most once, and not at all if the request
/// names no state.
pub(crate) async fn look_up<'s>(
    sessions: &StateRegistry,
    account: &str,
    route: &Route,
    scan: &'s Scan,
) -> NamedState<'s> {
    let is_stateless = route.endpoints.iter().all(|endpoint| endpoint.provider.stateless);
    let references: Vec<_> = scan
        .references
        .iter()
        .filter(|reference| reference.kind != StateKind::SummarizedItem || !is_stateless)
        .map(|reference| (reference, StateKey::new(account, reference.id)))
        .collect();
    if references.is_empty() {
        return NamedState::default();
    }
    let states: Vec<StateKey> = references.iter().map(|(_, state)| *state).collect();
    NamedState {
        references,
        found: sessions.find(&states).await,
    }
}

impl NamedState<'_> {
    /// Checks that the request's account has created all the state that the request names. Refuses the request if the account has
    /// not created some of that state, or if the creator is unknown because the store does not answer. Refuses nothing if the
    /// operator allows the account to use any state. `bill` is `None` for a free request.
    pub(crate) async fn check_ownership(
        &self,
        billing: &Billing,
        key: &KeyRecord,
        bill: Option<&Bill>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let Some(reference) = self.first_unknown() else {
            return Ok(());
        };
        let allowed = match bill {
            Some(bill) => bill.provider_state(),
            None => billing.provider_state(&key.account).await,
        };
        match allowed {
            ProviderState::Any => Ok(()),
            ProviderState::Own if !self.found.is_whole => Err(Refusal::StoreUnavailable),
            ProviderState::Own => Err(Refusal::StateUnknown {
                kind: reference.kind,
                id: reference.text(body).into_owned(),
            }),
        }
    }

    fn first_unknown(&self) -> Option<&Reference> {
        let mut known = self.served();
        known
            .find(|(_, _, served_by)| served_by.is_none())
            .map(|(reference, ..)| reference)
    }

    fn served(&self) -> impl Iterator<Item = (&Reference, StateKey, Option<&ServedBy>)> {
        let served_by = self.found.served_by.iter().map(Option::as_ref);
        self.references
            .iter()
            .zip(served_by)
            .map(|((reference, state), served_by)| (*reference, *state, served_by))
    }

    /// Returns the provider and credential that hold the state which this request continues. If the request continues no state,
    /// returns those of the first known state that it names; `None` if it names no known state.
    pub(crate) fn hint(&self) -> Option<SessionHint> {
        let continued = self.served().find(|(reference, ..)| reference.kind.is_continued());
        let (_, state, served_by) = continued.or_else(|| self.served().find(|(.., served_by)| served_by.is_some()))?;
        Some(SessionHint::for_state(state, served_by.cloned()))
    }
}

/// Collects and records the provider state that one answer creates.
#[derive(Debug)]
pub(crate) struct StateRecorder {
    /// The key of the request. The key's account owns the state.
    key: Arc<KeyRecord>,
    /// Whether the provider stores the answer, so that a later request can name it.
    is_kept: bool,
    /// The state that is being written to the store; `None` if no write has begun.
    pending: Option<PendingWrites>,
}

impl StateRecorder {
    /// Creates a recorder for an answer that has not begun.
    pub(crate) fn new(key: Arc<KeyRecord>, is_kept: bool) -> Self {
        Self {
            key,
            is_kept,
            pending: None,
        }
    }

    /// Records the provider state that the answer has created so far, with the account that owns it, and the provider and
    /// credential that serve it.
    pub(crate) fn record(&mut self, sessions: &StateRegistry, attempts: &AttemptPlan, meter: &AnswerMeter) {
        if !(200..300).contains(&meter.status()) {
            return;
        }
        let made = meter.created_state().unwrap_or_default();
        let answer = self.is_kept.then(|| meter.answer_id()).flatten();
        let answer = answer.map(|id| StateId::new(&id));
        let kept = made.kept.iter().filter(|_| self.is_kept);
        let made = answer.iter().chain(kept).chain(&made.always);
        let made = made.map(|id| StateKey::new(&self.key.account, *id));
        let mut states = attempts.state().into_iter().chain(made).peekable();
        if states.peek().is_none() {
            return;
        }
        let served_by = ServedBy {
            provider: attempts.endpoint().provider.name.clone(),
            credential: attempts.credential().credential.name.clone(),
        };
        let on_the_way = self.pending.get_or_insert_default();
        states.for_each(|state| sessions.record(state, &served_by, on_the_way));
    }

    /// Shuts the gate, so that the last bytes of the answer wait until the recorded state is stored. The wait is much shorter
    /// than `write_limit`, the timeout for writes to the client.
    pub(crate) fn delay_end(self, sessions: &StateRegistry, gate: &WriteGate, write_limit: Duration) {
        let patience = WRITE_WAIT_MAX.min(write_limit / 2);
        if let Some(written) = self.pending.and_then(|names| sessions.written(names, patience)) {
            gate.shut(written);
        }
    }
}

/// Delays the head and the last bytes of an answer on their way to the client. The head waits for the body ([`HeldHead`]). The
/// last bytes wait while the state that the answer has created is being written to the store.
///
/// Right after the last bytes, the client may send a request that names this state. The request may reach another node, or this
/// node after a crash. Such a node can find the state only in the store. The filter that gets the last bytes shuts the gate and
/// does not wait; the client's connection ([`super::client_stream`], [`super::client_h2`]) waits before it writes. The caller of
/// [`WriteGate::shut`] limits the wait.
#[derive(Default)]
pub(crate) struct WriteGate {
    /// Holds the answer's head until the body begins.
    pub head: HeldHead,
    /// Whether the gate is shut. Read before each write; `until` is locked only while the gate is shut.
    is_shut: AtomicBool,
    until: Mutex<Option<WriteCompletion>>,
}

impl WriteGate {
    /// Shuts the gate until `until` completes.
    pub(crate) fn shut(&self, until: WriteCompletion) {
        *self.until.lock() = Some(until);
        self.is_shut.store(true, Ordering::Release);
    }

    /// Returns `Ready` if bytes can pass. Otherwise, `cx` is woken as soon as bytes can pass.
    pub(crate) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_shut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut until = self.until.lock();
        if let Some(written) = until.as_mut() {
            ready!(written.as_mut().poll(cx));
        }
        *until = None;
        self.is_shut.store(false, Ordering::Release);
        Poll::Ready(())
    }

    /// Waits until bytes can pass.
    pub(crate) async fn open(&self) {
        poll_fn(|cx| self.poll_open(cx)).await;
    }
}

impl std::fmt::Debug for WriteGate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WriteGate")
            .field("head", &self.head)
            .field("is_shut", &self.is_shut)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_passes_while_it_is_shut_and_everything_after() {
        let gate = WriteGate::default();
        gate.open().await;
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        gate.shut(Box::pin(async move { receiver.await.expect("written") }));
        let mut waiting = std::pin::pin!(gate.open());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        sender.send(()).expect("somebody waits");
        waiting.await;
        gate.open().await;
    }
}

//! State at a provider: looked up for the request that names it, and recorded for its account while the answer that creates it
//! passes, before the client has the answer's end.

use std::{sync::Arc, time::Duration};

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        ledger::ProviderState,
        wire::{
            json_scan::{Reference, Scan},
            provider_state::{StateId, StateKey, StateKind},
            session_hint::{ServedBy, SessionHint},
        },
    },
    gateway::{attempt::attempts::Attempts, meter::Meter, write_gate::WriteGate},
    money::billing::{Bill, Billing},
    providers::{
        endpoint::Route,
        sessions::{OnTheWay, Recalled, Sessions},
    },
};

/// How long an answer's end waits at most until the state that it has created is written: as long as an unresponsive store is
/// waited for. After that the store counts as failing and no answer waits.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The state that a request names, with what the store knows of each.
#[derive(Debug, Default)]
pub(crate) struct NamedState<'s> {
    references: Vec<(&'s Reference, StateKey)>,
    recalled: Recalled,
}

/// Looks up the state that a request of this account names, with at most one call to the store, and none if it names
/// nothing.
pub(crate) async fn look_up<'s>(sessions: &Sessions, account: &str, route: &Route, scan: &'s Scan) -> NamedState<'s> {
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
        recalled: sessions.recall(&states).await,
    }
}

impl NamedState<'_> {
    /// Refuses a request that names state its account has not created, unless the operator allows any state. If the
    /// store cannot tell, the request is refused as well. `bill` is `None` if the request is free.
    pub(crate) async fn refuse_others(
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
            ProviderState::Own if !self.recalled.is_whole => Err(Refusal::StoreUnavailable),
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
        let served_by = self.recalled.served_by.iter().map(Option::as_ref);
        self.references
            .iter()
            .zip(served_by)
            .map(|((reference, state), served_by)| (*reference, *state, served_by))
    }

    /// The provider and credential that hold the state that this request continues, or else the first known state that it names.
    pub(crate) fn hint(&self) -> Option<SessionHint> {
        let continued = self.served().find(|(reference, ..)| reference.kind.is_continued());
        let (_, state, served_by) = continued.or_else(|| self.served().find(|(.., served_by)| served_by.is_some()))?;
        Some(SessionHint::of_state(state, served_by.cloned()))
    }
}

/// Collects and records the state that one answer creates.
#[derive(Debug)]
pub(crate) struct StateRecorder {
    /// The key of the request; its account owns the state.
    key: Arc<KeyRecord>,
    /// The provider keeps the answer, so a later request can name it.
    is_kept: bool,
    /// The names being written, if any.
    on_the_way: Option<OnTheWay>,
}

impl StateRecorder {
    /// For an answer that has not begun.
    pub(crate) fn new(key: Arc<KeyRecord>, is_kept: bool) -> Self {
        Self {
            key,
            is_kept,
            on_the_way: None,
        }
    }

    /// Records all that the answer has created so far, with the account that owns it and the provider and credential
    /// that serve it.
    pub(crate) fn record(&mut self, sessions: &Sessions, attempts: &Attempts, meter: &Meter) {
        if !(200..300).contains(&meter.status()) {
            return;
        }
        let made = meter.made().unwrap_or_default();
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
        let on_the_way = self.on_the_way.get_or_insert_default();
        states.for_each(|state| sessions.remember(state, &served_by, on_the_way));
    }

    /// Shuts the gate before the last bytes of the answer until the record is written. `write_limit` is the client's
    /// write timeout; the wait stays well below it.
    pub(crate) fn delay_end(self, sessions: &Sessions, gate: &WriteGate, write_limit: Duration) {
        let patience = WRITE_WAIT_MAX.min(write_limit / 2);
        if let Some(written) = self.on_the_way.and_then(|names| sessions.written(names, patience)) {
            gate.shut(written);
        }
    }
}

//! State at a provider that a request names: whether its account owns it, and which provider has it.

use crate::{
    domain::{
        catalogue::route::Route,
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        ledger::ProviderState,
        wire::{
            json_scan::{Reference, Scan},
            provider_state::{StateKey, StateKind},
            session_hint::{ServedBy, SessionHint},
        },
    },
    gateway::parts::Gateway,
    money::billing::Bill,
    providers::sessions::Recalled,
};

/// The state that a request names, with what the store knows of each.
#[derive(Debug, Default)]
pub(crate) struct Named<'s> {
    references: Vec<(&'s Reference, StateKey)>,
    recalled: Recalled,
}

/// Looks up the state that a request of this account names, with at most one call to the store, and none if it names
/// nothing.
pub(crate) async fn look_up<'s>(gateway: &Gateway, account: &str, route: &Route, scan: &'s Scan) -> Named<'s> {
    let is_stateless = route.legs.iter().all(|leg| leg.provider.stateless);
    let references: Vec<_> = scan
        .references
        .iter()
        .filter(|reference| reference.kind != StateKind::SummarizedItem || !is_stateless)
        .map(|reference| (reference, StateKey::new(account, reference.id)))
        .collect();
    if references.is_empty() {
        return Named::default();
    }
    let states: Vec<StateKey> = references.iter().map(|(_, state)| *state).collect();
    Named {
        references,
        recalled: gateway.sessions.recall(&states).await,
    }
}

impl Named<'_> {
    /// Refuses a request that names state its account has not created, unless the operator allows any state. If the
    /// store cannot tell, the request is refused as well. `bill` is `None` if the request is free.
    pub(crate) async fn refuse_others(
        &self,
        gateway: &Gateway,
        key: &KeyRecord,
        bill: Option<&Bill>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let Some(reference) = self.first_unknown() else {
            return Ok(());
        };
        let allowed = match bill {
            Some(bill) => bill.provider_state(),
            None => gateway.billing.provider_state(&key.account).await,
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

    /// Where the request must go: to whoever has the state that it continues, else to whoever has the first known state
    /// that it names.
    pub(crate) fn hint(&self) -> Option<SessionHint> {
        let continued = self.served().find(|(reference, ..)| reference.kind.is_continued());
        let (_, state, served_by) = continued.or_else(|| self.served().find(|(.., served_by)| served_by.is_some()))?;
        Some(SessionHint::of_state(state, served_by.cloned()))
    }
}

//! Whether a refusal of the store still holds, asked without wanting anything: no hold is put, no request is counted.

use crate::{
    billing::Billing,
    clock,
    domain::{
        key::KeyRecord,
        ledger::{Counted, Denied, ProviderState, QuotaStanding, Rates, Reset, Scope, period},
        money::NanoUsd,
    },
};

impl Billing {
    /// What the store would answer to any request of this key, if that is still `denied`'s kind of no. `None` when it may
    /// be admitted, and when that is not known: what running requests hold counts as free, because they may end at any
    /// moment, and a store that is away says nothing. `key` is as the store has it now where `denied` rests on the key.
    pub async fn still_denied(&self, key: &KeyRecord, denied: Denied) -> Option<Denied> {
        match denied {
            Denied::AccountUnknown | Denied::AccountSuspended | Denied::BalanceExhausted => {
                self.account_denies(key).await
            }
            Denied::QuotaExhausted(_) => self.quota_denies(key).await,
            Denied::RateLimited {
                scope,
                counted: Counted::Requests,
                limit,
                ..
            } => (self.rates(key, scope).await?.rpm == Some(limit)).then_some(denied),
            Denied::BalanceHeld
            | Denied::QuotaHeld(_)
            | Denied::RateLimited { .. }
            | Denied::Concurrency { .. }
            | Denied::KeyRevoked
            | Denied::KeyExpired => None,
        }
    }

    /// What an account may name at a provider; its own only, if the store does not say.
    pub async fn provider_state(&self, account: &str) -> ProviderState {
        let found = self.shared.ledger.account(account).await.ok().flatten();
        found.map(|account| account.terms.provider_state).unwrap_or_default()
    }

    async fn account_denies(&self, key: &KeyRecord) -> Option<Denied> {
        let Some(account) = self.shared.ledger.account(&key.account).await.ok()? else {
            return Some(Denied::AccountUnknown);
        };
        if account.suspended {
            return Some(Denied::AccountSuspended);
        }
        (account.balance <= NanoUsd::ZERO).then_some(Denied::BalanceExhausted)
    }

    async fn quota_denies(&self, key: &KeyRecord) -> Option<Denied> {
        let quota = key.terms.quota?;
        let spent = self.shared.ledger.key_spend(&key.account, &key.id).await.ok()?;
        let reset = key.terms.reset;
        let spent = match reset {
            Reset::None => spent.all,
            Reset::Daily => spent.day,
            Reset::Weekly => spent.week,
            Reset::Monthly => spent.month,
        };
        (spent >= quota).then(|| {
            Denied::QuotaExhausted(QuotaStanding {
                quota,
                spent,
                resets_at: period::resets_at(reset, self.shared.time.now_ms(clock::instant())),
            })
        })
    }

    async fn rates(&self, key: &KeyRecord, scope: Scope) -> Option<Rates> {
        match scope {
            Scope::Key => Some(key.terms.rates),
            Scope::Account => {
                let account = self.shared.ledger.account(&key.account).await.ok()??;
                Some(account.terms.rates)
            }
        }
    }
}

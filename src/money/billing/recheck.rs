//! What can be said of a request before its body has been read, without putting a hold or counting a request: whether a
//! denial still holds, whether the store has money for it, and which limit this node alone knows to be reached.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Counted, Denial, ProviderState, QuotaUse, Rates, Reset, Scope, period},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::service::Billing,
};

impl Billing {
    /// The rate or concurrency limit of the key or its account that any request exceeds now, by what this node has
    /// admitted and refused itself. Other nodes only add to that, so the store would say no as well, unless somebody has
    /// changed the limit: see [`Billing::still_denied`]. Asks nobody.
    pub(crate) fn foresees(&self, key: &KeyRecord) -> Option<Denial> {
        self.engine.grace.foresees(key)
    }

    /// Whether the store has said within the last seconds that the account has money and the key some of its quota, and
    /// this node has not spent it since. Asks nobody.
    pub(crate) fn vouches_for(&self, key: &KeyRecord) -> bool {
        self.engine.grace.vouches_for(key)
    }

    /// Counts a refused request in the rate of its key, on this node: it takes as much of that as one that is served.
    pub(crate) fn count_refused(&self, key: &KeyRecord) {
        self.engine.grace.count_refused(key);
    }

    /// Asks the store whether account and quota deny every request of this key. `None` if they do not, or if the store does not
    /// answer.
    pub(crate) async fn denies(&self, key: &KeyRecord) -> Option<Denial> {
        let (account, quota) = tokio::join!(self.account_denies(key), self.quota_denies(key));
        account.or(quota)
    }

    /// What the store would answer to any request of this key now, if that is a denial of the same kind as `denied`.
    /// `None` if the request may be admitted, or if that is unknown: running requests' holds count as free, since they
    /// may end at any moment, and an unreachable store says nothing. `key` is the store's current record if `denied`
    /// depends on the key.
    pub(crate) async fn still_denied(&self, key: &KeyRecord, denied: Denial) -> Option<Denial> {
        match denied {
            Denial::AccountUnknown | Denial::AccountSuspended | Denial::BalanceExhausted => {
                self.account_denies(key).await
            }
            Denial::QuotaExhausted(_) => self.quota_denies(key).await,
            Denial::RateLimited {
                scope, counted, limit, ..
            } => {
                let rates = self.rates(key, scope).await?;
                let now = match counted {
                    Counted::Requests => rates.rpm,
                    Counted::Tokens => rates.tpm,
                };
                (now == Some(limit)).then_some(denied)
            }
            Denial::Concurrency { scope, limit, .. } => {
                (self.rates(key, scope).await?.concurrency == Some(limit)).then_some(denied)
            }
            Denial::BalanceHeld | Denial::QuotaHeld(_) | Denial::KeyRevoked | Denial::KeyExpired => None,
        }
    }

    /// Which state at providers an account may name: only its own, if the store does not answer.
    pub(crate) async fn provider_state(&self, account: &str) -> ProviderState {
        let found = self.engine.ledger.account(account).await.ok().flatten();
        found.map(|account| account.terms.provider_state).unwrap_or_default()
    }

    async fn account_denies(&self, key: &KeyRecord) -> Option<Denial> {
        let Some(account) = self.engine.ledger.account(&key.account).await.ok()? else {
            return Some(Denial::AccountUnknown);
        };
        if account.suspended {
            return Some(Denial::AccountSuspended);
        }
        (account.balance <= NanoUsd::ZERO).then_some(Denial::BalanceExhausted)
    }

    /// Asks the store whether the key has spent its quota, if it has one. `None` if it has not, or if the store does not answer.
    pub(crate) async fn quota_denies(&self, key: &KeyRecord) -> Option<Denial> {
        let quota = key.terms.quota?;
        let spent = self.engine.ledger.key_spend(&key.account, &key.id).await.ok()?;
        let reset = key.terms.reset;
        let spent = match reset {
            Reset::None => spent.all,
            Reset::Daily => spent.day,
            Reset::Weekly => spent.week,
            Reset::Monthly => spent.month,
        };
        (spent >= quota).then(|| {
            Denial::QuotaExhausted(QuotaUse {
                quota,
                spent,
                resets_at: period::resets_at(reset, self.engine.time.now_ms(clock::instant())),
            })
        })
    }

    async fn rates(&self, key: &KeyRecord, scope: Scope) -> Option<Rates> {
        match scope {
            Scope::Key => Some(key.terms.rates),
            Scope::Account => {
                let account = self.engine.ledger.account(&key.account).await.ok()??;
                Some(account.terms.rates)
            }
        }
    }
}

//! What the ledger's scripts answer: a status, then what was asked for, all as text, because Lua's numbers are doubles.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::vec::IntoIter;

use crate::domain::keys::key::KeyId;
use crate::domain::keys::thresholds::Thresholds;
use crate::domain::ledger::consumption::Row;
use crate::domain::ledger::lease::{LeaseAllowance, Leased};
use crate::domain::ledger::notice::{Notice, NoticeOf, TakenNotices};
use crate::domain::ledger::{
    AccountRecord, AccountTerms, AccountView, AdmitReply, Counted, Denial, Grant, KeySpend, NodeId, ProviderState,
    QuotaUse, Rates, Scope, Spent, ToppedUp,
};
use crate::domain::money::NanoUsd;
use crate::store::StoreError;

/// A script's answer, read word by word.
pub(super) struct LedgerReply {
    words: IntoIter<String>,
}

impl LedgerReply {
    pub(super) fn new(words: Vec<String>) -> Self {
        Self {
            words: words.into_iter(),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.words
            .next()
            .ok_or_else(|| StoreError::Corrupt("a ledger script's answer is too short".to_owned()))
    }

    pub(super) fn rest(self) -> impl Iterator<Item = String> {
        self.words
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Result<T, StoreError> {
        parse(&self.text()?)
    }

    /// A number, or nothing as an empty text.
    fn optional<T: FromStr>(&mut self) -> Result<Option<T>, StoreError> {
        match self.text()?.as_str() {
            "" => Ok(None),
            text => parse(text).map(Some),
        }
    }

    pub(super) fn money(&mut self) -> Result<NanoUsd, StoreError> {
        self.number().map(NanoUsd::from_nanos)
    }

    /// What `lease.lua` answers behind its status, if the lease is there.
    pub(super) fn leased(mut self) -> Result<Leased, StoreError> {
        Ok(Leased {
            since_ms: self.number()?,
            recall: self.number()?,
            allowance: LeaseAllowance {
                requests: self.optional()?,
                tokens: self.optional()?,
                places: self.optional()?,
            },
            grant: self.grant()?,
        })
    }

    /// What `admit.lua` answers behind its status.
    pub(super) fn grant(mut self) -> Result<Grant, StoreError> {
        Ok(Grant {
            hold: self.money()?,
            at_ms: self.number()?,
            balance: self.money()?,
            watermark: self.number()?,
            low_balance: self.optional()?.map(NanoUsd::from_nanos),
            provider_state: self.provider_state()?,
            quota: self.quota_standing()?,
            account_rates: Rates {
                rpm: self.optional()?,
                tpm: self.optional()?,
                concurrency: self.optional()?,
            },
        })
    }

    /// Why `admit.lua` refuses.
    pub(super) fn denied(mut self) -> Result<AdmitReply, StoreError> {
        let denied = match self.text()?.as_str() {
            "revoked" => Denial::KeyRevoked,
            "expired" => Denial::KeyExpired,
            "suspended" => Denial::AccountSuspended,
            "balance" => Denial::BalanceExhausted,
            "balance_held" => Denial::BalanceHeld,
            "quota" => Denial::QuotaExhausted(self.quota_standing()?.ok_or_else(unknown)?),
            "quota_held" => Denial::QuotaHeld(self.quota_standing()?.ok_or_else(unknown)?),
            "concurrency" => Denial::Concurrency {
                scope: self.scope()?,
                limit: self.number()?,
                lent: self.text()? == "1",
            },
            "rate" => Denial::RateLimited {
                scope: self.scope()?,
                counted: self.counted()?,
                limit: self.number()?,
                retry_after_ms: self.number()?,
                lent: self.text()? == "1",
            },
            _ => return Err(unknown()),
        };
        Ok(AdmitReply::Refused(denied))
    }

    /// Quota, what was spent of it and the end of its period; nothing without a quota.
    fn quota_standing(&mut self) -> Result<Option<QuotaUse>, StoreError> {
        let (quota, spent) = (self.optional()?, self.optional()?);
        let resets_at = self.optional()?;
        let standing = |(quota, spent)| QuotaUse {
            quota: NanoUsd::from_nanos(quota),
            spent: NanoUsd::from_nanos(spent),
            resets_at,
        };
        Ok(quota.zip(spent).map(standing))
    }

    /// An amount, or nothing.
    pub(super) fn amount(mut self) -> Result<Option<NanoUsd>, StoreError> {
        Ok(self.optional()?.map(NanoUsd::from_nanos))
    }

    /// What `take_notices.lua` answers: how many were lost, when to ask again, and for each notice its name, what was reached,
    /// its limit, when, and how often it was taken.
    pub(super) fn taken_notices(mut self) -> Result<TakenNotices, StoreError> {
        let (lost, next_in_ms) = (self.number()?, self.optional()?);
        let mut notices = Vec::new();
        while let Some(name) = self.words.next() {
            notices.push(Notice {
                of: NoticeOf::parse(&name).ok_or_else(unknown)?,
                reached: self.money()?,
                limit: self.money()?,
                at_ms: self.number()?,
                tries: self.number()?,
            });
        }
        Ok(TakenNotices {
            notices,
            lost,
            next_in_ms,
        })
    }

    fn provider_state(&mut self) -> Result<ProviderState, StoreError> {
        self.text()?.parse().map_err(|_| unknown())
    }

    fn scope(&mut self) -> Result<Scope, StoreError> {
        match self.text()?.as_str() {
            "key" => Ok(Scope::Key),
            "account" => Ok(Scope::Account),
            _ => Err(unknown()),
        }
    }

    fn counted(&mut self) -> Result<Counted, StoreError> {
        match self.text()?.as_str() {
            "requests" => Ok(Counted::Requests),
            "tokens" => Ok(Counted::Tokens),
            _ => Err(unknown()),
        }
    }

    /// What `top_up.lua` answers.
    pub(super) fn topped_up(mut self, status: &str) -> Result<ToppedUp, StoreError> {
        match status {
            "granted" => self.money().map(ToppedUp::Granted),
            "refused" => Ok(ToppedUp::Refused),
            "recalling" => Ok(ToppedUp::Recalling),
            "no_hold" => Ok(ToppedUp::NoHold),
            _ => Err(unknown()),
        }
    }

    /// What `account.lua` answers.
    pub(super) fn account(mut self, id: &str) -> Result<AccountView, StoreError> {
        Ok(AccountView {
            id: id.to_owned(),
            balance: self.money()?,
            spent: self.money()?,
            held: self.money()?,
            running: self.number()?,
            created_at: self.number()?,
            paid_today: self.money()?,
            paid_this_month: self.money()?,
            record: self.record()?,
        })
    }

    fn record(&mut self) -> Result<AccountRecord, StoreError> {
        Ok(AccountRecord {
            revision: self.number()?,
            suspended: self.text()? == "1",
            terms: AccountTerms {
                low_balance: self.optional()?.map(NanoUsd::from_nanos),
                provider_state: self.provider_state()?,
                notify: Some(self.text()?)
                    .filter(|text| !text.is_empty())
                    .map(|text| thresholds(&text))
                    .transpose()?,
                rates: Rates {
                    rpm: self.optional()?,
                    tpm: self.optional()?,
                    concurrency: self.optional()?,
                },
            },
        })
    }

    /// What `summed.lua` answers behind its status.
    pub(super) fn summed(mut self) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        let mut summed = BTreeMap::new();
        while let Some(node) = self.words.next() {
            summed.insert(NodeId::parse(&node).ok_or_else(unknown)?, self.number()?);
        }
        Ok(summed)
    }

    /// What `spent.lua` answers behind its status.
    pub(super) fn spent(mut self) -> Result<Spent, StoreError> {
        let mut spent = Spent::new();
        while let Some(key) = self.words.next() {
            let (key, nanos) = (KeyId::parse(&key).map_err(|_| unknown())?, self.money()?);
            if nanos != NanoUsd::ZERO {
                spent.insert(key, nanos);
            }
        }
        Ok(spent)
    }

    /// What `key_spend.lua` answers.
    pub(super) fn key_spend(mut self) -> Result<KeySpend, StoreError> {
        Ok(KeySpend {
            all: self.money()?,
            day: self.money()?,
            week: self.money()?,
            month: self.money()?,
            held: self.money()?,
            running: self.number()?,
        })
    }
}

/// Parts of a quota, as a JSON list.
pub(super) fn thresholds(text: &str) -> Result<Thresholds, StoreError> {
    serde_json::from_str(text).map_err(|_| unknown())
}

pub(super) fn parse<T: FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse()
        .map_err(|_| StoreError::Corrupt("a ledger script answered a figure that is no number".to_owned()))
}

/// Reads a row of the log. The error names a place, never the content.
pub(super) fn row(text: &str) -> Result<Row, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        StoreError::Corrupt(format!("a row cannot be read (line {line}, column {column})"))
    })
}

/// A status that no script gives.
pub(super) fn unknown() -> StoreError {
    StoreError::Corrupt("a ledger script answered in an unknown way".to_owned())
}

//! The replies of the ledger's scripts: a status, then the results. All values are strings, because Lua's numbers are
//! doubles.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::vec::IntoIter;

use crate::domain::keys::KeyId;
use crate::domain::keys::terms::Thresholds;
use crate::domain::ledger::account::notices::{Notice, NoticeId, TakenNotices};
use crate::domain::ledger::consumption::Row;
use crate::domain::ledger::lease::{LeaseAllowance, LeaseGrant};
use crate::domain::ledger::{
    AccountRecord, AccountTerms, AccountView, AdmitReply, Denial, Grant, KeySpend, LimitScope, NodeId, ProviderState,
    QuotaUse, RateKind, RateLimits, SpendByKey, TopUpReply,
};
use crate::domain::money::NanoUsd;
use crate::store::StoreError;

/// A script's reply, which is read value by value.
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
        self.words.next().ok_or_else(|| {
            StoreError::Corrupt("a ledger script in redis returned a reply that is too short".to_owned())
        })
    }

    pub(super) fn remaining(self) -> impl Iterator<Item = String> {
        self.words
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Result<T, StoreError> {
        parse(&self.text()?)
    }

    /// Reads a number; `None` for an empty string.
    fn optional<T: FromStr>(&mut self) -> Result<Option<T>, StoreError> {
        match self.text()?.as_str() {
            "" => Ok(None),
            text => parse(text).map(Some),
        }
    }

    pub(super) fn money(&mut self) -> Result<NanoUsd, StoreError> {
        self.number().map(NanoUsd::from_nanos)
    }

    /// Reads the reply of `lease.lua` after its status, if the lease exists.
    pub(super) fn lease_grant(mut self) -> Result<LeaseGrant, StoreError> {
        Ok(LeaseGrant {
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

    /// Reads the reply of `admit.lua` after its status.
    pub(super) fn grant(mut self) -> Result<Grant, StoreError> {
        Ok(Grant {
            hold: self.money()?,
            at_ms: self.number()?,
            balance: self.money()?,
            watermark: self.number()?,
            low_balance: self.optional()?.map(NanoUsd::from_nanos),
            provider_state: self.provider_state()?,
            quota: self.quota_use()?,
            account_rates: RateLimits {
                rpm: self.optional()?,
                tpm: self.optional()?,
                concurrency: self.optional()?,
            },
        })
    }

    /// Reads the reason for which `admit.lua` denies a request.
    pub(super) fn denial(mut self) -> Result<AdmitReply, StoreError> {
        let denied = match self.text()?.as_str() {
            "revoked" => Denial::KeyRevoked,
            "expired" => Denial::KeyExpired,
            "suspended" => Denial::AccountSuspended,
            "balance" => Denial::BalanceExhausted,
            "balance_held" => Denial::BalanceHeld,
            "quota" => Denial::QuotaExhausted(self.quota_use()?.ok_or_else(unknown_answer)?),
            "quota_held" => Denial::QuotaHeld(self.quota_use()?.ok_or_else(unknown_answer)?),
            "concurrency" => Denial::Concurrency {
                scope: self.scope()?,
                limit: self.number()?,
                lent: self.text()? == "1",
            },
            "rate" => Denial::RateLimited {
                scope: self.scope()?,
                counted: self.rate_kind()?,
                limit: self.number()?,
                retry_after_ms: self.number()?,
                lent: self.text()? == "1",
            },
            _ => return Err(unknown_answer()),
        };
        Ok(AdmitReply::Refused(denied))
    }

    /// Reads a quota, the spent part of it and the end of its period; `None` if there is no quota.
    fn quota_use(&mut self) -> Result<Option<QuotaUse>, StoreError> {
        let (quota, spent) = (self.optional()?, self.optional()?);
        let resets_at = self.optional()?;
        let standing = |(quota, spent)| QuotaUse {
            quota: NanoUsd::from_nanos(quota),
            spent: NanoUsd::from_nanos(spent),
            resets_at,
        };
        Ok(quota.zip(spent).map(standing))
    }

    /// Reads an amount; `None` for an empty string.
    pub(super) fn amount(mut self) -> Result<Option<NanoUsd>, StoreError> {
        Ok(self.optional()?.map(NanoUsd::from_nanos))
    }

    /// Reads the reply of `take_notices.lua`: the number of dropped notices, when to take notices again, and for each notice its
    /// name, the value that was reached, its limit, its time, and how often it was taken.
    pub(super) fn taken_notices(mut self) -> Result<TakenNotices, StoreError> {
        let (lost, next_in_ms) = (self.number()?, self.optional()?);
        let mut notices = Vec::new();
        while let Some(name) = self.words.next() {
            notices.push(Notice {
                id: NoticeId::parse(&name).ok_or_else(unknown_answer)?,
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
        self.text()?.parse().map_err(|_| unknown_answer())
    }

    fn scope(&mut self) -> Result<LimitScope, StoreError> {
        match self.text()?.as_str() {
            "key" => Ok(LimitScope::Key),
            "account" => Ok(LimitScope::Account),
            _ => Err(unknown_answer()),
        }
    }

    fn rate_kind(&mut self) -> Result<RateKind, StoreError> {
        match self.text()?.as_str() {
            "requests" => Ok(RateKind::Requests),
            "tokens" => Ok(RateKind::Tokens),
            _ => Err(unknown_answer()),
        }
    }

    /// Reads the reply of `top_up.lua`.
    pub(super) fn topped_up(mut self, status: &str) -> Result<TopUpReply, StoreError> {
        match status {
            "granted" => self.money().map(TopUpReply::Granted),
            "refused" => Ok(TopUpReply::Refused),
            "recalling" => Ok(TopUpReply::Recalling),
            "no_hold" => Ok(TopUpReply::NoHold),
            _ => Err(unknown_answer()),
        }
    }

    /// Reads the reply of `account.lua`.
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
                    .map(|text| parse_thresholds(&text))
                    .transpose()?,
                rates: RateLimits {
                    rpm: self.optional()?,
                    tpm: self.optional()?,
                    concurrency: self.optional()?,
                },
            },
        })
    }

    /// Reads the reply of `summed.lua` after its status.
    pub(super) fn summed(mut self) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        let mut summed = BTreeMap::new();
        while let Some(node) = self.words.next() {
            summed.insert(NodeId::parse(&node).ok_or_else(unknown_answer)?, self.number()?);
        }
        Ok(summed)
    }

    /// Reads the reply of `spent.lua` after its status.
    pub(super) fn spent(mut self) -> Result<SpendByKey, StoreError> {
        let mut spent = SpendByKey::new();
        while let Some(key) = self.words.next() {
            let (key, nanos) = (KeyId::parse(&key).map_err(|_| unknown_answer())?, self.money()?);
            if nanos != NanoUsd::ZERO {
                spent.insert(key, nanos);
            }
        }
        Ok(spent)
    }

    /// Reads the reply of `key_spend.lua`.
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

/// Parses quota thresholds from a JSON list.
pub(super) fn parse_thresholds(text: &str) -> Result<Thresholds, StoreError> {
    serde_json::from_str(text).map_err(|_| unknown_answer())
}

pub(super) fn parse<T: FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse()
        .map_err(|_| StoreError::Corrupt("a ledger script in redis returned a value that is not a number".to_owned()))
}

/// Parses a row of the log. The error contains a position, never the content.
pub(super) fn parse_row(text: &str) -> Result<Row, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        StoreError::Corrupt(format!("cannot parse a row of the log (line {line}, column {column})"))
    })
}

/// Returns the error for a reply that weir's scripts never return.
pub(super) fn unknown_answer() -> StoreError {
    StoreError::Corrupt("a ledger script in redis returned a reply in an unknown format".to_owned())
}

//! Reads an account's durable state from the answer of `kept.lua`.

use std::collections::BTreeMap;

use super::{
    answer::{self, LedgerReply, parse},
    daily_sums,
};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            AccountTerms, KeyTerms, LogDay, NodeId, OperationId, Rates,
            account::{
                AccountSummary,
                key::{AccountKey, Mirror},
                operations::Recorded,
                paid_in::PaidIn,
            },
            daily_sums::{DailySums, Subject},
        },
        money::NanoUsd,
    },
    store::StoreError,
};

/// The durable state of one account.
#[derive(Default)]
pub(super) struct StoredAccount {
    pub(super) standing: AccountSummary,
    /// The operations that are remembered, the oldest first.
    pub(super) operations: Vec<Recorded>,
    pub(super) keys: BTreeMap<KeyId, AccountKey>,
    /// The days that have rows.
    pub(super) logs: Vec<LogDay>,
    /// The sums of the account alone, of each day that is over.
    pub(super) over: BTreeMap<i64, DailySums>,
    /// All sums of the other days.
    pub(super) latest: DailySums,
}

impl StoredAccount {
    /// Reads an answer behind its status.
    pub(super) fn read(answer: LedgerReply) -> Result<Self, StoreError> {
        let mut account = Self::default();
        let mut words = answer.rest();
        while let Some(kind) = words.next() {
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                return Err(answer::unknown());
            };
            match kind.as_str() {
                "" => account.field(&name, &value)?,
                "operation" => account.operations.push(Recorded {
                    id: OperationId::parse(&name).ok_or_else(answer::unknown)?,
                    amount: NanoUsd::from_nanos(parse(&value)?),
                }),
                "log" => account.logs.push(LogDay {
                    day: parse(&name)?,
                    rows: parse(&value)?,
                }),
                "over" => {
                    let day = parse(&name)?;
                    let sums = account.over.entry(day).or_default();
                    daily_sums::add(sums, day, &Subject::Account.text(), &value)?;
                }
                other => match other.strip_prefix("sums:") {
                    Some(day) => daily_sums::add(&mut account.latest, parse(day)?, &name, &value)?,
                    None => {
                        let period = other.parse().map_err(|_| answer::unknown())?;
                        let amount = NanoUsd::from_nanos(parse(&value)?);
                        account.key(&name)?.spent.insert(period, amount);
                    }
                },
            }
        }
        Ok(account)
    }

    fn field(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let AccountTerms {
            low_balance,
            provider_state,
            notify,
            rates,
        } = &mut self.standing.record.terms;
        match name {
            "balance" => self.standing.balance = NanoUsd::from_nanos(parse(value)?),
            "spent" => self.standing.spent = NanoUsd::from_nanos(parse(value)?),
            "revision" => self.standing.record.revision = parse(value)?,
            "suspended" => self.standing.record.suspended = value == "1",
            "created" => self.standing.created_at = parse(value)?,
            "low_balance" => *low_balance = Some(NanoUsd::from_nanos(parse(value)?)),
            "rpm" => rates.rpm = Some(parse(value)?),
            "tpm" => rates.tpm = Some(parse(value)?),
            "concurrency" => rates.concurrency = Some(parse(value)?),
            "notify" => *notify = Some(answer::thresholds(value)?),
            "paid" => self.standing.paid = paid(value)?,
            "provider_state" => *provider_state = value.parse().map_err(|_| answer::unknown())?,
            _ => match name.split_once(':') {
                Some(("wm", node)) => {
                    let node = NodeId::parse(node).ok_or_else(answer::unknown)?;
                    self.standing.watermarks.insert(node, parse(value)?);
                }
                Some(("sum", node)) => {
                    let node = NodeId::parse(node).ok_or_else(answer::unknown)?;
                    self.standing.summed.insert(node, parse(value)?);
                }
                Some(("k", id)) => self.key(id)?.mirror = Some(mirror(value)?),
                // The generation, and what a later weir may add.
                _ => {}
            },
        }
        Ok(())
    }

    fn key(&mut self, id: &str) -> Result<&mut AccountKey, StoreError> {
        let id = KeyId::parse(id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(self.keys.entry(id).or_default())
    }
}

/// What was paid in lately, as `apply.lua` has it: day, amount, month, amount.
fn paid(text: &str) -> Result<PaidIn, StoreError> {
    let parts: Vec<&str> = text.split('|').collect();
    let [day, of_day, month, of_month] = parts.as_slice() else {
        return Err(answer::unknown());
    };
    Ok(PaidIn {
        day: parse(day)?,
        of_day: NanoUsd::from_nanos(parse(of_day)?),
        month: parse(month)?,
        of_month: NanoUsd::from_nanos(parse(of_month)?),
    })
}

/// A mirror as `mirror.lua` has it: revision, state, end, quota, reset, requests, tokens, concurrency.
fn mirror(text: &str) -> Result<Mirror, StoreError> {
    let parts: Vec<&str> = text.split('|').collect();
    let [revision, state, ends, quota, reset, rpm, tpm, concurrency] = parts.as_slice() else {
        return Err(answer::unknown());
    };
    Ok(Mirror {
        revision: parse(revision)?,
        revoked: *state == "revoked",
        expires_at: optional(ends)?,
        terms: KeyTerms {
            quota: optional(quota)?.map(NanoUsd::from_nanos),
            reset: parse(reset)?,
            rates: Rates {
                rpm: optional(rpm)?,
                tpm: optional(tpm)?,
                concurrency: optional(concurrency)?,
            },
            ..KeyTerms::default()
        },
    })
}

fn optional<T: std::str::FromStr>(text: &str) -> Result<Option<T>, StoreError> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse(text).map(Some)
    }
}

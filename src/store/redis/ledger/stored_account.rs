//! Reads an account's durable data from the reply of `kept.lua`.

use std::collections::BTreeMap;

use super::{
    answer::{self, LedgerReply, parse},
    daily_sums,
};
use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            AccountTerms, KeyTerms, LogDay, NodeId, OperationId, RateLimits,
            account::{
                AccountSummary,
                key::{AccountKey, KeyMirror},
                operations::{PaidIn, RecordedOperation},
            },
            daily_sums::{DailySums, SumSubject},
        },
        money::NanoUsd,
    },
    store::StoreError,
};

/// The durable data of one account.
#[derive(Default)]
pub(super) struct StoredAccount {
    pub(super) standing: AccountSummary,
    /// The operations that the account stores, oldest first.
    pub(super) operations: Vec<RecordedOperation>,
    pub(super) keys: BTreeMap<KeyId, AccountKey>,
    /// The days that have rows in the log, with the number of rows.
    pub(super) logs: Vec<LogDay>,
    /// For each day before yesterday, the sums of the account as a whole, without the sums by key and by tag.
    pub(super) past_days: BTreeMap<i64, DailySums>,
    /// All sums of yesterday and later days.
    pub(super) latest: DailySums,
}

impl StoredAccount {
    /// Reads a reply after its status.
    pub(super) fn read(answer: LedgerReply) -> Result<Self, StoreError> {
        let mut account = Self::default();
        let mut words = answer.remaining();
        while let Some(kind) = words.next() {
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                return Err(answer::unknown_answer());
            };
            match kind.as_str() {
                "" => account.read_field(&name, &value)?,
                "operation" => account.operations.push(RecordedOperation {
                    id: OperationId::parse(&name).ok_or_else(answer::unknown_answer)?,
                    amount: NanoUsd::from_nanos(parse(&value)?),
                }),
                "log" => account.logs.push(LogDay {
                    day: parse(&name)?,
                    rows: parse(&value)?,
                }),
                "over" => {
                    let day = parse(&name)?;
                    let sums = account.past_days.entry(day).or_default();
                    daily_sums::add(sums, day, &SumSubject::Account.store_name(), &value)?;
                }
                other => match other.strip_prefix("sums:") {
                    Some(day) => daily_sums::add(&mut account.latest, parse(day)?, &name, &value)?,
                    None => {
                        let period = other.parse().map_err(|_| answer::unknown_answer())?;
                        let amount = NanoUsd::from_nanos(parse(&value)?);
                        account.key(&name)?.spent.insert(period, amount);
                    }
                },
            }
        }
        Ok(account)
    }

    fn read_field(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
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
            "notify" => *notify = Some(answer::parse_thresholds(value)?),
            "paid" => self.standing.paid = paid(value)?,
            "provider_state" => *provider_state = value.parse().map_err(|_| answer::unknown_answer())?,
            _ => match name.split_once(':') {
                Some(("wm", node)) => {
                    let node = NodeId::parse(node).ok_or_else(answer::unknown_answer)?;
                    self.standing.watermarks.insert(node, parse(value)?);
                }
                Some(("sum", node)) => {
                    let node = NodeId::parse(node).ok_or_else(answer::unknown_answer)?;
                    self.standing.summed.insert(node, parse(value)?);
                }
                Some(("k", id)) => self.key(id)?.mirror = Some(mirror(value)?),
                // These are the generation, and fields that a later weir may add.
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

/// Parses the recent payments as `apply.lua` encodes them: day, amount, month, amount.
fn paid(text: &str) -> Result<PaidIn, StoreError> {
    let parts: Vec<&str> = text.split('|').collect();
    let [day, of_day, month, of_month] = parts.as_slice() else {
        return Err(answer::unknown_answer());
    };
    Ok(PaidIn {
        day: parse(day)?,
        of_day: NanoUsd::from_nanos(parse(of_day)?),
        month: parse(month)?,
        of_month: NanoUsd::from_nanos(parse(of_month)?),
    })
}

/// Parses a key's terms as `mirror.lua` encodes them: revision, state, expiry, quota, reset, requests, tokens, concurrency.
fn mirror(text: &str) -> Result<KeyMirror, StoreError> {
    let parts: Vec<&str> = text.split('|').collect();
    let [revision, state, ends, quota, reset, rpm, tpm, concurrency] = parts.as_slice() else {
        return Err(answer::unknown_answer());
    };
    Ok(KeyMirror {
        revision: parse(revision)?,
        revoked: *state == "revoked",
        expires_at: parse_optional(ends)?,
        terms: KeyTerms {
            quota: parse_optional(quota)?.map(NanoUsd::from_nanos),
            reset: parse(reset)?,
            rates: RateLimits {
                rpm: parse_optional(rpm)?,
                tpm: parse_optional(tpm)?,
                concurrency: parse_optional(concurrency)?,
            },
            ..KeyTerms::default()
        },
    })
}

fn parse_optional<T: std::str::FromStr>(text: &str) -> Result<Option<T>, StoreError> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse(text).map(Some)
    }
}

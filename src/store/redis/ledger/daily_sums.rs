//! Daily sums in Redis: reading and replacing them, and the format of the scripts. The sums of one subject are a string that
//! contains `;model=number|number|...` for each model.

use std::{collections::BTreeMap, fmt::Write, ops::RangeInclusive};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    domain::{
        ledger::{
            consumption::Row,
            daily_sums::{DailySum, DailySums, SumSelector, SumSubject, Sums},
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    store::{
        StoreError,
        redis::ledger::{
            ADMIN_BUDGET, CallPolicy, RedisLedger,
            answer::{self, LedgerReply, parse},
        },
    },
};

/// The characters that are not percent-encoded in a model's name. None of them has a meaning in the format.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Returns a script's arguments for the sums of a row: the model's name, the row's numbers, and its summed tags.
pub(super) fn row_arguments(row: &Row) -> [String; 3] {
    [encode_model(&row.model), encode_numbers(&Sums::of(row)), tags(row)]
}

/// Returns a script's arguments for the sums of one model: the model's name and the numbers.
pub(super) fn sums_arguments(model: &str, sums: &Sums) -> [String; 2] {
    [encode_model(model), encode_numbers(sums)]
}

/// Returns those tags of a row for which there are daily sums, separated by spaces.
pub(super) fn tags(row: &Row) -> String {
    let summed = row.tags.iter().filter(|tag| tag.is_summed());
    summed.map(|tag| tag.as_str()).collect::<Vec<_>>().join(" ")
}

fn encode_model(model: &str) -> String {
    utf8_percent_encode(model, PLAIN).to_string()
}

/// Returns all numbers, each followed by `|`. A zero is written as an empty string.
fn encode_numbers(sums: &Sums) -> String {
    let cost = sums.cost_nano_usd.nanos().unsigned_abs();
    let mut list = String::new();
    for number in [sums.requests, sums.errors, cost, sums.digest]
        .into_iter()
        .chain(sums.usage.parts())
    {
        // Writing to a String cannot fail.
        let _ = match number {
            0 => write!(list, "|"),
            number => write!(list, "{number}|"),
        };
    }
    list
}

/// Appends one model's sums to the text of a subject.
pub(super) fn write_model(models: &mut String, model: &str, sums: &Sums) {
    // Writing to a String cannot fail.
    let _ = write!(models, ";{}={}", encode_model(model), encode_numbers(sums));
}

fn read_numbers(list: &str) -> Result<Sums, StoreError> {
    let mut numbers = list.split('|').map(|number| match number {
        "" => Ok(0),
        number => parse::<u64>(number),
    });
    let mut next = || numbers.next().unwrap_or(Ok(0));
    let (requests, errors, cost, digest) = (next()?, next()?, next()?, next()?);
    let mut parts = Usage::default().parts();
    for part in &mut parts {
        *part = next()?;
    }
    let cost = i64::try_from(cost).map_err(|_| answer::unknown_answer())?;
    Ok(Sums {
        requests,
        errors,
        cost_nano_usd: NanoUsd::from_nanos(cost),
        digest,
        usage: Usage::from_parts(parts),
    })
}

/// Adds the sums of a subject on a day to `all`. `models` is the text that the hash in Redis stores.
pub(super) fn add(all: &mut DailySums, day: i64, subject: &str, models: &str) -> Result<(), StoreError> {
    let subject = SumSubject::parse(subject).ok_or_else(answer::unknown_answer)?;
    for entry in models.split(';').skip(1) {
        let (model, list) = entry.split_once('=').ok_or_else(answer::unknown_answer)?;
        let model = percent_decode_str(model).decode_utf8_lossy();
        all.add_to(day, subject.clone(), model.into(), &read_numbers(list)?);
    }
    Ok(())
}

/// Reads the reply of `sums.lua` after its status.
pub(super) fn read(answer: LedgerReply) -> Result<DailySums, StoreError> {
    let mut sums = DailySums::default();
    let mut words = answer.remaining();
    while let Some(day) = words.next() {
        let (Some(subject), Some(models)) = (words.next(), words.next()) else {
            return Err(answer::unknown_answer());
        };
        add(&mut sums, parse(&day)?, &subject, &models)?;
    }
    Ok(sums)
}

impl RedisLedger {
    /// Implements [`crate::store::ledger::LedgerStore::sums`].
    pub(super) async fn daily_sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        let (subject, ranges) = match of {
            SumSelector::One(subject) => (subject.store_name(), vec![days]),
            // Each day is read separately, because an account may have many keys, and a script blocks the server.
            SumSelector::Keys => ("k:".to_owned(), days.map(|day| day..=day).collect()),
            SumSelector::Tags => ("t:".to_owned(), days.map(|day| day..=day).collect()),
        };
        let mut sums = Vec::new();
        for days in ranges {
            sums.extend(self.read_sums(account, days, &subject).await?.iter());
        }
        Ok(sums)
    }

    /// Returns all sums of a day.
    pub(super) async fn sums_of_day(&self, account: &str, day: i64) -> Result<DailySums, StoreError> {
        self.read_sums(account, day..=day, "").await
    }

    /// Returns the sums that `sums.lua` returns for `subject`.
    async fn read_sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        subject: &str,
    ) -> Result<DailySums, StoreError> {
        let mut call = self.prepare(&self.scripts().sums, account);
        call.arg(*days.start()).arg(*days.end()).arg(subject);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        read(answer)
    }

    /// Implements [`crate::store::ledger::LedgerStore::put_sums`].
    pub(super) async fn replace_sums(
        &self,
        account: &str,
        day: i64,
        sums: &DailySums,
        seen: u64,
    ) -> Result<bool, StoreError> {
        let mut subjects: BTreeMap<SumSubject, String> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.day == day) {
            write_model(subjects.entry(sum.subject).or_default(), &sum.model, &sum.sums);
        }
        let subjects = subjects
            .into_iter()
            .map(|(subject, models)| [subject.store_name(), models]);
        self.put_subjects(account, day, Some(seen), &subjects.collect::<Vec<_>>())
            .await
    }

    /// Stores the sums of subjects by model. If `seen` is given, they replace all sums of the day, provided that the account's
    /// sums still count exactly `seen` requests. If `seen` is `None`, the sums of a subject replace only the earlier sums of the
    /// same subject. Returns whether the sums were stored.
    pub(super) async fn put_subjects(
        &self,
        account: &str,
        day: i64,
        seen: Option<u64>,
        subjects: &[[String; 2]],
    ) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().put_sums, account);
        let seen = seen.map_or_else(String::new, |seen| seen.to_string());
        call.arg(day).arg(seen).arg(subjects.as_flattened());
        // Not repeated when the answer is lost, because the second time the day's number of requests may differ.
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}

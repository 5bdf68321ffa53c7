//! The daily sums as the scripts have them: by subject, `;model=number|number|...|` again and again.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::answer::{self, LedgerReply, parse};
use crate::domain::ledger::consumption::Row;
use crate::domain::ledger::daily_sums::{DailySums, Subject, Sums};
use crate::domain::money::NanoUsd;
use crate::domain::wire::usage::Usage;
use crate::store::StoreError;

/// What stays as it is in a model's name: nothing that has a meaning in a list.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// What a script takes of a row for its sums: the model's name, what the row counts, and the tags that are summed.
pub(super) fn words(row: &Row) -> [String; 3] {
    [encoded(&row.model), numbers(&Sums::of(row)), tags(row)]
}

/// What a script takes of sums of one model: the model's name, and what they count.
pub(super) fn summed_words(model: &str, sums: &Sums) -> [String; 2] {
    [encoded(model), numbers(sums)]
}

/// The tags of a row that are summed, with a space between them.
pub(super) fn tags(row: &Row) -> String {
    let summed = row.tags.iter().filter(|tag| tag.is_summed());
    summed.map(|tag| tag.as_str()).collect::<Vec<_>>().join(" ")
}

fn encoded(model: &str) -> String {
    utf8_percent_encode(model, PLAIN).to_string()
}

/// Each number behind the other, with its end; nothing for a zero.
fn numbers(sums: &Sums) -> String {
    let cost = sums.cost_nano_usd.nanos().unsigned_abs();
    let mut list = String::new();
    for number in [sums.requests, sums.errors, cost, sums.digest]
        .into_iter()
        .chain(sums.usage.parts())
    {
        // Writing to a text cannot fail.
        let _ = match number {
            0 => write!(list, "|"),
            number => write!(list, "{number}|"),
        };
    }
    list
}

/// Writes one model's sums behind those of others.
pub(super) fn write_model(models: &mut String, model: &str, sums: &Sums) {
    // Writing to a text cannot fail.
    let _ = write!(models, ";{}={}", encoded(model), numbers(sums));
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
    let cost = i64::try_from(cost).map_err(|_| answer::unknown())?;
    Ok(Sums {
        requests,
        errors,
        cost_nano_usd: NanoUsd::from_nanos(cost),
        digest,
        usage: Usage::of_parts(parts),
    })
}

/// Adds the sums of a subject on a day, as a hash has them, to those of others.
pub(super) fn add(all: &mut DailySums, day: i64, subject: &str, models: &str) -> Result<(), StoreError> {
    let subject = Subject::parse(subject).ok_or_else(answer::unknown)?;
    for entry in models.split(';').skip(1) {
        let (model, list) = entry.split_once('=').ok_or_else(answer::unknown)?;
        let model = percent_decode_str(model).decode_utf8_lossy();
        all.add_to(day, subject.clone(), model.into(), &read_numbers(list)?);
    }
    Ok(())
}

/// What `sums.lua` answers behind its status.
pub(super) fn read(answer: LedgerReply) -> Result<DailySums, StoreError> {
    let mut sums = DailySums::default();
    let mut words = answer.rest();
    while let Some(day) = words.next() {
        let (Some(subject), Some(models)) = (words.next(), words.next()) else {
            return Err(answer::unknown());
        };
        add(&mut sums, parse(&day)?, &subject, &models)?;
    }
    Ok(sums)
}

//! Daily sums of the consumption log: what an account, each of its keys and each tag has used of each model, by the day on
//! which the requests ended (UTC). A store changes them in the same atomic step as the rows that they are the sums of.
//!
//! Counts and costs below zero count as zero; each is held within 2^53 - 1, and so is every sum.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;

use crate::domain::{
    keys::key::KeyId,
    ledger::{consumption::Row, tag::Tag},
    money::NanoUsd,
    wire::usage::{self, Usage},
};

mod difference;
#[cfg(test)]
mod tests;

pub(crate) use difference::{Difference, differences};

/// How many tags of one account have sums of their own on one day. What comes later that day is summed together.
pub(crate) const TAGS_A_DAY_MAX: usize = 100;
/// The largest count: Lua counts in doubles, which are exact up to here.
const COUNT_MAX: u64 = NanoUsd::MAX.nanos().unsigned_abs();
const DAY_MS: i64 = 24 * 3600 * 1000;
/// A digest is less than this, so that the sum of two is exact in a double.
const DIGESTS: u64 = 1 << 48;
/// What most rows take at most, in bytes.
const ROW_BYTES: usize = 512;

/// What some rows add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sums {
    /// How many rows there are.
    pub requests: u64,
    /// How many of them have another status than 2xx.
    pub errors: u64,
    /// What they cost.
    pub cost_nano_usd: NanoUsd,
    /// The sum of their digests ([`digest_of`]) modulo [`DIGESTS`]: it differs where any column of a row does.
    #[serde(skip_serializing_if = "usage::is_zero")]
    pub digest: u64,
    /// What they consumed.
    #[serde(flatten)]
    pub usage: Usage,
}

/// What sums are kept of. In the order of their texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The account as a whole.
    Account,
    /// One of its keys.
    Key(KeyId),
    /// All rows with tags beyond [`TAGS_A_DAY_MAX`], each counted once.
    OtherTags,
    /// All rows with a tag.
    Tag(Tag),
}

/// The sums of one subject, one model and one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailySum {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// Whose sums these are.
    pub subject: Subject,
    /// The catalogue model that served.
    pub model: SmolStr,
    /// The sums.
    pub sums: Sums,
}

/// Which sums of an account are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumsOf {
    /// Those of one subject.
    One(Subject),
    /// Those of each key.
    Keys,
    /// Those of each tag, and of those beyond the limit.
    Tags,
}

/// The sums of one account, by day, subject and model: the reference for every ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DailySums(BTreeMap<(i64, Subject, SmolStr), Sums>);

/// Rows of one account on their way into its sums: those of one day, key and model are added up before, because there are many.
#[derive(Debug, Default)]
pub(crate) struct SumsOfRows<'r> {
    alike: BTreeMap<(i64, &'r KeyId, &'r SmolStr), Sums>,
    of_tags: DailySums,
}

/// The tags of one account that have sums of their own on one day: the first that came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DayTags(BTreeSet<Tag>);

/// The day of a row: that on which its request ended, counted from the Unix epoch.
pub(crate) fn day_of(row: &Row) -> i64 {
    row.time_ms.div_euclid(DAY_MS)
}

/// The digest of a row: of the SHA-256 of its bytes, as the journal has them, as many bits as are less than [`DIGESTS`].
fn digest_of(row: &Row) -> u64 {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    row.write_bytes(&mut bytes);
    let hash = Sha256::digest(&bytes);
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(first) % DIGESTS
}

impl Sums {
    /// What one row counts.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            requests: 1,
            errors: u64::from(!(200..300).contains(&row.status)),
            cost_nano_usd: row.cost_nano_usd.clamp(NanoUsd::ZERO, NanoUsd::MAX),
            digest: digest_of(row),
            usage: row.usage.at_most(COUNT_MAX),
        }
    }

    /// Both together.
    #[must_use]
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests).min(COUNT_MAX),
            errors: self.errors.saturating_add(other.errors).min(COUNT_MAX),
            cost_nano_usd: self.cost_nano_usd.saturating_add(other.cost_nano_usd).min(NanoUsd::MAX),
            digest: self.digest.wrapping_add(other.digest) % DIGESTS,
            usage: self.usage.plus(&other.usage).at_most(COUNT_MAX),
        }
    }
}

impl Subject {
    /// Its name in a store: `a`, `k:` and a key's id, `o`, or `t:` and a tag.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Account => "a".to_owned(),
            Self::Key(id) => format!("k:{}", id.as_str()),
            Self::OtherTags => "o".to_owned(),
            Self::Tag(tag) => format!("t:{tag}"),
        }
    }

    /// Reads such a name; `None`: it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match (text, text.split_once(':')) {
            ("a", _) => Some(Self::Account),
            ("o", _) => Some(Self::OtherTags),
            (_, Some(("k", id))) => KeyId::parse(id).ok().map(Self::Key),
            (_, Some(("t", tag))) => Tag::parse(tag).map(Self::Tag),
            _ => None,
        }
    }
}

impl SumsOf {
    /// Whether a subject is asked for.
    pub(crate) fn takes(&self, subject: &Subject) -> bool {
        match self {
            Self::One(wanted) => wanted == subject,
            Self::Keys => matches!(subject, Subject::Key(_)),
            Self::Tags => matches!(subject, Subject::Tag(_) | Subject::OtherTags),
        }
    }
}

impl DailySums {
    /// Adds a row. `tags` are those of its day.
    pub(crate) fn add(&mut self, row: &Row, tags: &mut DayTags) {
        let (day, sums) = (day_of(row), Sums::of(row));
        let own = [Subject::Account, Subject::Key(row.key_id.clone())];
        for subject in own.into_iter().chain(tags.subjects(row)) {
            self.add_to(day, subject, row.model.clone(), &sums);
        }
    }

    /// Adds to the sums of one subject, model and day.
    pub(crate) fn add_to(&mut self, day: i64, subject: Subject, model: SmolStr, more: &Sums) {
        let place = self.0.entry((day, subject, model)).or_default();
        *place = place.plus(more);
    }

    /// The sums of all rows of one day, in their order.
    #[cfg(test)]
    pub(crate) fn of_day<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let (mut sums, mut tags) = (Self::default(), DayTags::default());
        for row in rows {
            sums.add(row, &mut tags);
        }
        sums
    }

    /// Those of some days that are asked for, by day, subject and model.
    pub(crate) fn of(&self, days: &RangeInclusive<i64>, of: &SumsOf) -> Vec<DailySum> {
        let asked = self
            .iter()
            .filter(|sum| days.contains(&sum.day) && of.takes(&sum.subject));
        asked.collect()
    }

    /// All of them, by day, subject and model.
    pub(crate) fn iter(&self) -> impl Iterator<Item = DailySum> {
        self.0.iter().map(|((day, subject, model), sums)| DailySum {
            day: *day,
            subject: subject.clone(),
            model: model.clone(),
            sums: *sums,
        })
    }
}

impl<'r> SumsOfRows<'r> {
    /// Adds a row. `tags` are those of its day.
    pub(crate) fn add(&mut self, row: &'r Row, tags: &mut DayTags) {
        let (day, sums) = (day_of(row), Sums::of(row));
        let alike = self.alike.entry((day, &row.key_id, &row.model)).or_default();
        *alike = alike.plus(&sums);
        for subject in tags.subjects(row) {
            self.of_tags.add_to(day, subject, row.model.clone(), &sums);
        }
    }

    /// The sums of all rows that were added.
    pub(crate) fn sums(self) -> DailySums {
        let mut all = self.of_tags;
        for ((day, key, model), sums) in self.alike {
            all.add_to(day, Subject::Account, model.clone(), &sums);
            all.add_to(day, Subject::Key(key.clone()), model.clone(), &sums);
        }
        all
    }
}

impl FromIterator<DailySum> for DailySums {
    fn from_iter<I: IntoIterator<Item = DailySum>>(sums: I) -> Self {
        let mut all = Self::default();
        all.extend(sums);
        all
    }
}

impl Extend<DailySum> for DailySums {
    fn extend<I: IntoIterator<Item = DailySum>>(&mut self, sums: I) {
        for sum in sums {
            self.add_to(sum.day, sum.subject, sum.model, &sum.sums);
        }
    }
}

impl DayTags {
    /// Whose sums a row of the day counts in besides its account's and its key's. Its tags are noted, as far as there is room.
    fn subjects(&mut self, row: &Row) -> Vec<Subject> {
        let (mut subjects, mut others) = (Vec::new(), false);
        for tag in row.tags.iter().filter(|tag| tag.is_summed()) {
            if self.0.contains(tag) || self.0.len() < TAGS_A_DAY_MAX {
                self.0.insert(tag.clone());
                subjects.push(Subject::Tag(tag.clone()));
            } else {
                others = true;
            }
        }
        subjects.extend(others.then_some(Subject::OtherTags));
        subjects
    }
}

impl FromIterator<Tag> for DayTags {
    fn from_iter<I: IntoIterator<Item = Tag>>(tags: I) -> Self {
        Self(tags.into_iter().collect())
    }
}

impl Extend<Tag> for DayTags {
    fn extend<I: IntoIterator<Item = Tag>>(&mut self, tags: I) {
        self.0.extend(tags);
    }
}

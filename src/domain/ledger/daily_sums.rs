//! Daily sums of the consumption log. For each day (UTC) and each model, they contain the usage of an account, of each of its
//! keys and of each tag. A request belongs to the day on which it ended. A store updates the sums in the same atomic step in
//! which it adds the rows.
//!
//! A negative number or cost is treated as zero. Each number, each cost and every sum is at most 2^53 - 1.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;

use crate::domain::{
    keys::KeyId,
    ledger::{consumption::Row, ids::Tag},
    money::NanoUsd,
    wire::usage::{self, Usage},
};

/// The maximum number of tags of one account that have sums of their own on one day. Further tags of that day share one sum.
pub(crate) const TAGS_A_DAY_MAX: usize = 100;
/// The maximum number in a sum. The Lua scripts in Redis compute with doubles, which are exact up to this number.
const COUNT_MAX: u64 = NanoUsd::MAX.nanos().unsigned_abs();
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The modulus of digests. It is so small that a double can represent the sum of two digests exactly.
const DIGESTS: u64 = 1 << 48;
/// A number of bytes that is sufficient for most rows in the form of the journal.
const ROW_BYTES: usize = 512;

/// Sums over rows of the consumption log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sums {
    /// The number of rows.
    pub requests: u64,
    /// The number of rows whose status is not 2xx.
    pub errors: u64,
    /// The cost of the rows, in nano-USD.
    pub cost_nano_usd: NanoUsd,
    /// The sum of the rows' digests ([`digest_of`]) modulo [`DIGESTS`]. It changes if any column of a row changes.
    #[serde(skip_serializing_if = "usage::is_zero")]
    pub digest: u64,
    /// The consumption of the rows.
    #[serde(flatten)]
    pub usage: Usage,
}

/// The subject of sums: an account, a key or a tag. Subjects are sorted by their names in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SumSubject {
    /// All rows of the account.
    Account,
    /// The rows of one of the account's keys.
    Key(KeyId),
    /// The rows with a tag that has no sums of its own (see `TAGS_A_DAY_MAX`). A row with several such tags is included once.
    OtherTags,
    /// The rows with this tag.
    Tag(Tag),
}

/// The sums of one subject, one model and one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailySum {
    /// The day in UTC, in days since the Unix epoch.
    pub day: i64,
    /// The subject of the sums.
    pub subject: SumSubject,
    /// The catalogue model that served the requests.
    pub model: SmolStr,
    /// The sums for this subject, model and day.
    pub sums: Sums,
}

/// A selection of an account's sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumSelector {
    /// The sums of this subject.
    One(SumSubject),
    /// The sums of each key.
    Keys,
    /// The sums of each tag that has its own sums, and the common sums of all other tags.
    Tags,
}

/// The sums of one account, by day, subject and model. Every ledger must compute the same sums as this type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DailySums(BTreeMap<(i64, SumSubject, SmolStr), Sums>);

/// Rows of one account that will be added to its sums. The rows of the same day, key and model are added up first, which makes
/// adding many rows faster.
#[derive(Debug, Default)]
pub(crate) struct RowSums<'r> {
    by_key_and_model: BTreeMap<(i64, &'r KeyId, &'r SmolStr), Sums>,
    of_tags: DailySums,
}

/// The tags of one account that have sums of their own on one day: the first `TAGS_A_DAY_MAX` different tags in that day's rows,
/// except
/// session tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DayTags(BTreeSet<Tag>);

/// Returns the day on which a row's request ended, in days since the Unix epoch.
pub(crate) fn day_of(row: &Row) -> i64 {
    row.time_ms.div_euclid(DAY_MS)
}

/// Returns the digest of a row. It is computed from the SHA-256 of the row's bytes in the form of the journal. The first eight
/// bytes of the SHA-256 are a number in little-endian order. The digest consists of the lowest 48 bits of this number.
fn digest_of(row: &Row) -> u64 {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    row.write_bytes(&mut bytes);
    let hash = Sha256::digest(&bytes);
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(first) % DIGESTS
}

impl Sums {
    /// Returns the sums of one row.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            requests: 1,
            errors: u64::from(!(200..300).contains(&row.status)),
            cost_nano_usd: row.cost_nano_usd.clamp(NanoUsd::ZERO, NanoUsd::MAX),
            digest: digest_of(row),
            usage: row.usage.with_parts_at_most(COUNT_MAX),
        }
    }

    /// Returns the sum of these sums and `other`.
    #[must_use]
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests).min(COUNT_MAX),
            errors: self.errors.saturating_add(other.errors).min(COUNT_MAX),
            cost_nano_usd: self.cost_nano_usd.saturating_add(other.cost_nano_usd).min(NanoUsd::MAX),
            digest: self.digest.wrapping_add(other.digest) % DIGESTS,
            usage: self.usage.plus(&other.usage).with_parts_at_most(COUNT_MAX),
        }
    }
}

impl SumSubject {
    /// Returns the name under which a store keeps the subject: `a`, `k:KEY_ID`, `o` or `t:TAG`.
    pub(crate) fn store_name(&self) -> String {
        match self {
            Self::Account => "a".to_owned(),
            Self::Key(id) => format!("k:{}", id.as_str()),
            Self::OtherTags => "o".to_owned(),
            Self::Tag(tag) => format!("t:{tag}"),
        }
    }

    /// Parses the name under which a store keeps a subject; `None` if `text` is not such a name.
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

impl SumSelector {
    /// Whether the selection includes a subject.
    pub(crate) fn matches(&self, subject: &SumSubject) -> bool {
        match self {
            Self::One(wanted) => wanted == subject,
            Self::Keys => matches!(subject, SumSubject::Key(_)),
            Self::Tags => matches!(subject, SumSubject::Tag(_) | SumSubject::OtherTags),
        }
    }
}

impl DailySums {
    /// Adds a row. `tags` contains the tags that have sums of their own on the row's day.
    pub(crate) fn add(&mut self, row: &Row, tags: &mut DayTags) {
        let (day, sums) = (day_of(row), Sums::of(row));
        let own = [SumSubject::Account, SumSubject::Key(row.key_id.clone())];
        for subject in own.into_iter().chain(tags.record_subjects(row)) {
            self.add_to(day, subject, row.model.clone(), &sums);
        }
    }

    /// Adds `more` to the sums of one subject, model and day.
    pub(crate) fn add_to(&mut self, day: i64, subject: SumSubject, model: SmolStr, more: &Sums) {
        let place = self.0.entry((day, subject, model)).or_default();
        *place = place.plus(more);
    }

    /// Returns the sums of the rows of one day, which are added in the given order.
    #[cfg(test)]
    pub(crate) fn of_day<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let (mut sums, mut tags) = (Self::default(), DayTags::default());
        for row in rows {
            sums.add(row, &mut tags);
        }
        sums
    }

    /// Returns the selected sums of a range of days, sorted by day, subject and model.
    pub(crate) fn select(&self, days: &RangeInclusive<i64>, of: &SumSelector) -> Vec<DailySum> {
        let asked = self
            .iter()
            .filter(|sum| days.contains(&sum.day) && of.matches(&sum.subject));
        asked.collect()
    }

    /// Returns all sums, sorted by day, subject and model.
    pub(crate) fn iter(&self) -> impl Iterator<Item = DailySum> {
        self.0.iter().map(|((day, subject, model), sums)| DailySum {
            day: *day,
            subject: subject.clone(),
            model: model.clone(),
            sums: *sums,
        })
    }
}

impl<'r> RowSums<'r> {
    /// Adds a row. `tags` contains the tags that have sums of their own on the row's day.
    pub(crate) fn add(&mut self, row: &'r Row, tags: &mut DayTags) {
        let (day, sums) = (day_of(row), Sums::of(row));
        let alike = self.by_key_and_model.entry((day, &row.key_id, &row.model)).or_default();
        *alike = alike.plus(&sums);
        for subject in tags.record_subjects(row) {
            self.of_tags.add_to(day, subject, row.model.clone(), &sums);
        }
    }

    /// Returns the sums of all rows that were added.
    pub(crate) fn into_sums(self) -> DailySums {
        let mut all = self.of_tags;
        for ((day, key, model), sums) in self.by_key_and_model {
            all.add_to(day, SumSubject::Account, model.clone(), &sums);
            all.add_to(day, SumSubject::Key(key.clone()), model.clone(), &sums);
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
    /// Adds the row's tags to the tags with sums of their own, up to the limit of the day. Returns the subjects that include the
    /// row, except the account and the key.
    fn record_subjects(&mut self, row: &Row) -> Vec<SumSubject> {
        let (mut subjects, mut others) = (Vec::new(), false);
        for tag in row.tags.iter().filter(|tag| tag.is_summed()) {
            if self.0.contains(tag) || self.0.len() < TAGS_A_DAY_MAX {
                self.0.insert(tag.clone());
                subjects.push(SumSubject::Tag(tag.clone()));
            } else {
                others = true;
            }
        }
        subjects.extend(others.then_some(SumSubject::OtherTags));
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

/// A subject, model and day for which the ledger's sums differ from the sums of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumDifference {
    /// The day in UTC, in days since the Unix epoch.
    pub(crate) day: i64,
    /// The subject of the sums.
    pub(crate) subject: SumSubject,
    /// The name of the model.
    pub(crate) model: SmolStr,
    /// The sums in the ledger.
    pub(crate) kept: Sums,
    /// The sums of the rows.
    pub(crate) of_rows: Sums,
}

/// Returns the differences between the ledger's sums and the sums of the rows, sorted by day, subject and model. A missing sum is
/// treated as a sum of zero.
pub(crate) fn differences(kept: &DailySums, of_rows: &DailySums) -> Vec<SumDifference> {
    let places: BTreeSet<_> = kept.0.keys().chain(of_rows.0.keys()).collect();
    let of = |sums: &DailySums, place| sums.0.get(place).copied().unwrap_or_default();
    let compared = places
        .into_iter()
        .map(|place| (place, of(kept, place), of(of_rows, place)));
    let differing = compared.filter(|(_, kept, of_rows)| kept != of_rows);
    differing
        .map(|((day, subject, model), kept, of_rows)| SumDifference {
            day: *day,
            subject: subject.clone(),
            model: model.clone(),
            kept,
            of_rows,
        })
        .collect()
}

/// The minimum interval between two runs of retention, in milliseconds: half a day.
pub(crate) const RUN_INTERVAL_MS: i64 = DAY_MS / 2;

/// The progress of retention, which removes old data. Days are in UTC, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetentionProgress {
    /// The first day that is retained.
    pub kept_from: i64,
    /// The time that the clock showed at the last run, in milliseconds since the Unix epoch.
    pub ran_ms: i64,
    /// The retention period in days.
    pub keep_days: i64,
}

impl RetentionProgress {
    /// Returns the progress after the first run. `oldest` is the day of the oldest existing item; `None` if no item exists.
    pub(crate) fn first_run(now_ms: i64, keep_days: i64, oldest: Option<i64>) -> Self {
        let wanted = first_day_by_clock(now_ms, keep_days);
        Self {
            kept_from: oldest.unwrap_or(wanted).min(wanted),
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the progress after an operator has ordered the removal of everything before `day`.
    pub(crate) fn forced_until(day: i64, now_ms: i64, keep_days: i64) -> Self {
        Self {
            kept_from: day,
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the progress after the next run. If no run is due, only a changed retention period takes effect.
    #[must_use]
    pub(crate) fn next_run(self, now_ms: i64, keep_days: i64, oldest: Option<i64>) -> Self {
        let wanted = first_day_by_clock(now_ms, keep_days);
        let shorter = self.keep_days.saturating_sub(keep_days).max(0);
        let kept_from = self.kept_from.saturating_add(shorter);
        // At the time when the oldest item was created, items older than the retention period could already be removed.
        let floor = oldest.map_or(wanted, |oldest| oldest.saturating_sub(keep_days));
        let since = now_ms.saturating_sub(self.ran_ms);
        if since < 0 {
            // The clock was ahead at the last run, or is behind now. So everything that the current clock retains is retained
            // again.
            return Self {
                kept_from: kept_from.min(wanted.max(floor)),
                ran_ms: now_ms,
                keep_days,
            };
        }
        if since < RUN_INTERVAL_MS {
            return Self {
                kept_from,
                keep_days,
                ..self
            };
        }
        let from = kept_from.max(floor);
        Self {
            kept_from: from.max(wanted.min(from.saturating_add(1))),
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the first day to retain. Everything before it can be removed.
    pub(crate) fn first_kept(self, now_ms: i64) -> i64 {
        self.kept_from.min(first_day_by_clock(now_ms, self.keep_days))
    }

    /// Returns the number of days that are still retained, but are older than the retention period according to the clock.
    pub(crate) fn days_behind(self, now_ms: i64) -> i64 {
        first_day_by_clock(now_ms, self.keep_days)
            .saturating_sub(self.kept_from)
            .max(0)
    }
}

/// Returns the first day to retain, computed from the clock and the retention period only.
fn first_day_by_clock(now_ms: i64, keep_days: i64) -> i64 {
    now_ms.div_euclid(DAY_MS).saturating_sub(keep_days)
}

#[cfg(test)]
mod retention_tests {
    use proptest::prelude::*;

    use super::*;

    const TODAY: i64 = 20_000;
    const KEEP: i64 = 180;

    fn noon(day: i64) -> i64 {
        day * DAY_MS + DAY_MS / 2
    }

    fn begun(oldest: Option<i64>) -> RetentionProgress {
        RetentionProgress::first_run(noon(TODAY), KEEP, oldest)
    }

    #[test]
    fn day_by_day_it_follows_the_clock() {
        let oldest = Some(TODAY - KEEP);
        let mut retention = begun(oldest);
        for day in TODAY..TODAY + 300 {
            retention = retention.next_run(noon(day), KEEP, oldest);
            assert_eq!(retention.first_kept(noon(day)), day - KEEP);
            assert_eq!(retention.days_behind(noon(day)), 0);
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_costs_one_day_however_often_it_starts() {
        for oldest in [TODAY - KEEP, TODAY - 3, TODAY] {
            let mut retention = begun(Some(oldest));
            let before = retention.first_kept(noon(TODAY));
            for _ in 0..50 {
                retention = retention.next_run(noon(TODAY + 200), KEEP, Some(oldest));
                assert!(retention.first_kept(noon(TODAY + 200)) <= before + 1);
            }
            // It is set right again.
            for _ in 0..50 {
                retention = retention.next_run(noon(TODAY), KEEP, Some(oldest));
                assert_eq!(retention.first_kept(noon(TODAY)), TODAY - KEEP);
            }
        }
    }

    #[test]
    fn what_was_missed_is_caught_up_with_by_a_day_a_day() {
        let oldest = Some(TODAY - KEEP);
        let mut retention = begun(oldest);
        let mut now = noon(TODAY + 30);
        for _ in 0..60 {
            retention = retention.next_run(now, KEEP, oldest);
            now += RUN_INTERVAL_MS;
        }
        assert_eq!(retention.days_behind(now), 0);
    }

    #[test]
    fn a_store_that_was_made_by_a_wrong_clock_loses_nothing_when_that_is_set_right() {
        for wrong in [noon(TODAY + 200), 0] {
            let mut retention = RetentionProgress::first_run(wrong, KEEP, None);
            for now in [noon(TODAY), noon(TODAY) + RUN_INTERVAL_MS, noon(TODAY + 200)] {
                retention = retention.next_run(now, KEEP, Some(TODAY));
                assert!(retention.first_kept(now) <= TODAY - KEEP + 2, "{retention:?}");
            }
            // It does not stay behind for as long as the clock was wrong.
            let retention = retention.next_run(noon(TODAY + 1), KEEP, Some(TODAY));
            let retention = retention.next_run(noon(TODAY + 2), KEEP, Some(TODAY));
            assert!(retention.days_behind(noon(TODAY + 2)) <= 2, "{retention:?}");
        }
    }

    #[test]
    fn a_shorter_time_holds_at_once() {
        let retention = begun(Some(TODAY - KEEP));
        let shorter = retention.next_run(noon(TODAY), 30, Some(TODAY - KEEP));
        assert_eq!(shorter.first_kept(noon(TODAY)), TODAY - 30);
        let longer = shorter.next_run(noon(TODAY), KEEP, Some(TODAY - 30));
        assert_eq!(longer.first_kept(noon(TODAY)), TODAY - KEEP);
    }

    proptest! {
        #[test]
        fn no_run_removes_more_than_one_day_more(clocks in prop::collection::vec(0..60_000i64, 1..60), oldest in 19_000..20_001i64) {
            let mut retention = begun(Some(oldest));
            let mut removed_to = retention.first_kept(noon(TODAY));
            for day in clocks {
                let now = noon(day);
                retention = retention.next_run(now, KEEP, Some(oldest.max(removed_to)));
                let next = retention.first_kept(now);
                prop_assert!(next <= removed_to.max(oldest - KEEP) + 1, "{} after {}", next, removed_to);
                removed_to = removed_to.max(next);
            }
        }
    }
}

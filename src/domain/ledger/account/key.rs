//! What an account knows about one of its keys: a mirror of its record, and its spending.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{
        key::{KeyRecord, KeyState},
        terms::KeyTerms,
    },
    ledger::{
        account::{
            amounts::{charge, sum},
            bucket::Buckets,
        },
        admission::Denial,
        period::{COUNTERS_KEPT_MS, Period, day_at},
        step::Settlement,
    },
    money::NanoUsd,
};

/// One key of an account. Its rate buckets are not stored: they start full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountKey {
    /// The mirror of its record; `None` if the key has only been settled for.
    pub mirror: Option<Mirror>,
    /// Spending by period; only periods with any.
    pub spent: BTreeMap<Period, NanoUsd>,
    #[serde(skip)]
    buckets: Buckets,
    /// The day whose first admission dropped old counters, counted from the Unix epoch.
    #[serde(skip)]
    cleaned: Option<i32>,
}

/// The part of a key's record that admission checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mirror {
    /// The record's revision.
    pub revision: u64,
    /// The key was revoked.
    pub revoked: bool,
    /// When it expires, in seconds since the Unix epoch; `None` if it does not.
    pub expires_at: Option<i64>,
    /// Its limits. For a running answer, the terms in the caller's record apply.
    pub terms: KeyTerms,
}

impl Mirror {
    fn of(record: &KeyRecord) -> Self {
        Self {
            revision: record.revision,
            revoked: matches!(record.state, KeyState::Revoked { .. }),
            expires_at: record.expires_at,
            terms: record.terms,
        }
    }

    /// Whether the key works at this moment, in seconds since the Unix epoch. Revoked is said before expired.
    pub(super) fn check(&self, now_unix: i64) -> Result<(), Denial> {
        match self.expires_at {
            _ if self.revoked => Err(Denial::KeyRevoked),
            Some(end) if end <= now_unix => Err(Denial::KeyExpired),
            _ => Ok(()),
        }
    }
}

impl AccountKey {
    /// What counts for a request with this record; `None`: the record is out of date.
    pub(super) fn mirror(known: Option<&Self>, record: &KeyRecord) -> Option<Mirror> {
        match known.and_then(|key| key.mirror) {
            Some(known) if known.revision > record.revision => None,
            Some(known) if known.revision == record.revision => Some(known),
            _ => Some(Mirror::of(record)),
        }
    }

    pub(super) fn take_over(&mut self, mirror: Mirror) {
        self.mirror = Some(mirror);
    }

    pub(super) fn revision(&self) -> Option<u64> {
        self.mirror.map(|mirror| mirror.revision)
    }

    pub(super) fn terms(&self) -> KeyTerms {
        self.mirror.map(|mirror| mirror.terms).unwrap_or_default()
    }

    pub(super) fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// How full its buckets are, as another process has left them.
    pub(super) fn fill(&mut self, buckets: Buckets) {
        self.buckets = buckets;
    }

    pub(super) fn spent(&self, period: Period) -> NanoUsd {
        self.spent.get(&period).copied().unwrap_or(NanoUsd::ZERO)
    }

    /// A request of it was admitted.
    pub(super) fn granted(&mut self, buckets: Buckets, now_ms: i64) {
        self.buckets = buckets;
        self.clean(now_ms);
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) {
        let rates = self.terms().rates;
        self.buckets
            .correct(&rates, settlement.tokens_estimated, settlement.tokens_used);
        let cost = charge(settlement);
        if cost > NanoUsd::ZERO {
            for period in Period::each_at(settlement.at_ms) {
                let spent = self.spent.entry(period).or_default();
                *spent = sum(*spent, cost);
            }
        }
    }

    /// Drops counters of periods that ended long ago, once a day. A period that is over since before some moment comes before
    /// that of its kind which the moment lies in.
    fn clean(&mut self, now_ms: i64) {
        let today = Some(day_at(now_ms));
        if self.cleaned == today {
            return;
        }
        let [_, day, week, month] = Period::each_at(now_ms.saturating_sub(COUNTERS_KEPT_MS));
        self.spent.retain(|period, _| match period {
            Period::All => true,
            Period::Day(_) => *period >= day,
            Period::Week(_) => *period >= week,
            Period::Month(_) => *period >= month,
        });
        self.cleaned = today;
    }
}

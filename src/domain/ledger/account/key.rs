//! A key in its account: a mirror of the key's record, and the key's spending.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{KeyRecord, KeyState, terms::KeyTerms},
    ledger::{
        Denial, Settlement,
        account::{bucket::RateBuckets, charge, sum},
        period::{COUNTERS_KEPT_MS, Period, day_at},
    },
    money::NanoUsd,
};

/// A key of an account. Its rate buckets are not stored, so they are full after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountKey {
    /// The mirror of the key's record; `None` if the account knows the key only from settlements.
    pub mirror: Option<KeyMirror>,
    /// The spending by period. Periods without spending are left out.
    pub spent: BTreeMap<Period, NanoUsd>,
    #[serde(skip)]
    buckets: RateBuckets,
    /// The day on which old counters were last dropped, in days since the Unix epoch.
    #[serde(skip)]
    cleaned: Option<i32>,
}

/// The part of a key's record that admission checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyMirror {
    /// The revision of the key's record.
    pub revision: u64,
    /// Whether the key was revoked.
    pub revoked: bool,
    /// The time at which the key expires, in seconds since the Unix epoch; `None` if it never expires.
    pub expires_at: Option<i64>,
    /// The key's limits. For running answers, a node uses the `on_exhausted` and `finish_factor` settings in its own copy of the
    /// key's record, not those in this field.
    pub terms: KeyTerms,
}

impl KeyMirror {
    fn of(record: &KeyRecord) -> Self {
        Self {
            revision: record.revision,
            revoked: matches!(record.state, KeyState::Revoked { .. }),
            expires_at: record.expires_at,
            terms: record.terms,
        }
    }

    /// Checks the key at `now_unix`, in seconds since the Unix epoch. A revocation takes precedence over expiry.
    pub(super) fn check(&self, now_unix: i64) -> Result<(), Denial> {
        match self.expires_at {
            _ if self.revoked => Err(Denial::KeyRevoked),
            Some(end) if end <= now_unix => Err(Denial::KeyExpired),
            _ => Ok(()),
        }
    }
}

impl AccountKey {
    /// Returns the mirror that applies to a request with this record: the account's mirror or a mirror of the record, whichever
    /// has the higher revision. `None` if the record is out of date.
    pub(super) fn current_mirror(known: Option<&Self>, record: &KeyRecord) -> Option<KeyMirror> {
        match known.and_then(|key| key.mirror) {
            Some(known) if known.revision > record.revision => None,
            Some(known) if known.revision == record.revision => Some(known),
            _ => Some(KeyMirror::of(record)),
        }
    }

    pub(super) fn set_mirror(&mut self, mirror: KeyMirror) {
        self.mirror = Some(mirror);
    }

    pub(super) fn revision(&self) -> Option<u64> {
        self.mirror.map(|mirror| mirror.revision)
    }

    pub(super) fn terms(&self) -> KeyTerms {
        self.mirror.map(|mirror| mirror.terms).unwrap_or_default()
    }

    pub(super) fn buckets(&self) -> &RateBuckets {
        &self.buckets
    }

    /// Replaces the key's rate buckets.
    pub(super) fn set_buckets(&mut self, buckets: RateBuckets) {
        self.buckets = buckets;
    }

    pub(super) fn spent(&self, period: Period) -> NanoUsd {
        self.spent.get(&period).copied().unwrap_or(NanoUsd::ZERO)
    }

    /// Replaces the key's rate buckets after an admission, and drops old counters.
    pub(super) fn on_granted(&mut self, buckets: RateBuckets, now_ms: i64) {
        self.buckets = buckets;
        self.drop_old_counters(now_ms);
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

    /// Drops the counters of old periods, once a day. A period is old if it ended at least [`COUNTERS_KEPT_MS`] before `now_ms`.
    fn drop_old_counters(&mut self, now_ms: i64) {
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

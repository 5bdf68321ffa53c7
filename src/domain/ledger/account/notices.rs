//! Notices about money that runs out: a key has spent a percentage of its quota, or a balance has become low.
//!
//! A ledger records a notice in the same atomic step as the charge that caused it. Spending in a period only grows, and each step
//! is applied once. So there is only one notice for each percentage of a quota and each period, even if several nodes charge the
//! key.
//!
//! An account stores a notice until it is acknowledged. While one node has claimed a notice, no other node can claim it. The node
//! that has claimed it may fail, so a notice that is not acknowledged becomes due again after a pause. The pause doubles each
//! time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{KeyId, terms::PERCENTS},
    ledger::{
        Settlement,
        account::{Account, bounded, charge},
        ids::NodeId,
        period::Period,
    },
    money::NanoUsd,
};

/// The maximum number of notices that an account stores. Further notices are dropped and counted as lost.
pub(crate) const NOTICES_MAX: usize = 256;
/// The maximum number of notices in one claim. The notices of the earliest requests come first.
pub(crate) const TAKEN_MAX: usize = 8;
/// The maximum number of times that the pause is doubled.
pub(crate) const DOUBLINGS_MAX: u32 = 6;

/// The notices of one account, by [`NoticeId::store_name`], and the number of lost notices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notices {
    kept: BTreeMap<String, StoredNotice>,
    lost: u64,
}

impl Notices {
    /// Adds a notice, unless the account already has a notice with the same id.
    pub(super) fn record(&mut self, of: &NoticeId, reached: NanoUsd, limit: NanoUsd, at_ms: i64) {
        let name = of.store_name();
        if self.kept.contains_key(&name) {
            return;
        }
        if self.kept.len() >= NOTICES_MAX {
            self.lost += 1;
            return;
        }
        let waiting = StoredNotice {
            reached,
            limit,
            at_ms,
            tries: 0,
            due_ms: 0,
        };
        self.kept.insert(name, waiting);
    }

    /// Claims the notices that are due, as described for [`crate::store::ledger::LedgerStore::take_notices`].
    pub(crate) fn claim_due(&mut self, pause_ms: i64, now_ms: i64) -> TakenNotices {
        let mut due: Vec<(&String, &mut StoredNotice)> =
            self.kept.iter_mut().filter(|(_, one)| one.due_ms <= now_ms).collect();
        due.sort_by(|(name, one), (other_name, other)| (one.at_ms, name).cmp(&(other.at_ms, other_name)));
        let mut notices = Vec::new();
        for (name, waiting) in due.into_iter().take(TAKEN_MAX) {
            waiting.due_ms = now_ms.saturating_add(pause_ms << waiting.tries.min(DOUBLINGS_MAX));
            waiting.tries = waiting.tries.saturating_add(1);
            notices.extend(NoticeId::parse(name).map(|of| waiting.to_notice(of)));
        }
        let next = self.kept.values().map(|one| one.due_ms).min();
        TakenNotices {
            notices,
            lost: std::mem::take(&mut self.lost),
            next_in_ms: next.map(|next| next.saturating_sub(now_ms).max(0)),
        }
    }

    /// Removes delivered notices. Returns whether at least one of them existed.
    pub(crate) fn acknowledge(&mut self, told: &[NoticeId]) -> bool {
        let before = self.kept.len();
        for of in told {
            self.kept.remove(&of.store_name());
        }
        self.kept.len() < before
    }

    /// Whether the account has no notices, and no lost notices that must still be reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.lost == 0
    }
}

impl Account {
    /// Returns the notices that are not acknowledged yet.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns the notices, so that they can be claimed or acknowledged.
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// Returns the account with these notices, which come from a store.
    pub(crate) fn with_notices(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Records the notices of a settlement that is being applied: one for each percentage of the key's quota that the spending
    /// reaches, and one if the balance reaches its low mark. `(node, seq)` is the step of the settlement, and `before` is the
    /// balance before this step.
    pub(super) fn record_notices(&mut self, (node, seq): (&NodeId, u64), settlement: &Settlement, before: NanoUsd) {
        let (cost, at_ms) = (charge(settlement), settlement.at_ms);
        if cost == NanoUsd::ZERO {
            return;
        }
        if let Some(key) = self.keys.get(&settlement.key)
            && let Some(quota) = key.terms().quota.map(bounded)
        {
            let period = Period::of(key.terms().reset, at_ms);
            let after = key.spent(period);
            for percent in reached_percents(quota, after.saturating_sub(cost), after) {
                let of = NoticeId::Quota {
                    percent,
                    period,
                    quota,
                    key: settlement.key.clone(),
                };
                self.notices.record(&of, after, quota, at_ms);
            }
        }
        if let Some(summary) = &self.summary
            && let Some(low) = summary.record.terms.low_balance.map(bounded)
            && before > low
            && summary.balance <= low
        {
            let node = node.clone();
            self.notices
                .record(&NoticeId::Balance { seq, node }, summary.balance, low, at_ms);
        }
    }
}

/// The id of a notice. It describes the subject of the notice, so two notices with the same id are the same notice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeId {
    /// A key has spent a percentage of its quota.
    Quota {
        /// The percentage of the quota, which is one of [`PERCENTS`].
        percent: u8,
        /// The period of the quota.
        period: Period,
        /// The amount of the quota.
        quota: NanoUsd,
        /// The id of the key.
        key: KeyId,
    },
    /// A charge has lowered the balance to its low mark or below it.
    Balance {
        /// The number of the step with the charge.
        seq: u64,
        /// The node that made this step.
        node: NodeId,
    },
}

/// A notice that is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The subject of the notice.
    pub id: NoticeId,
    /// The value that was reached: the key's spending in the period, or the balance.
    pub reached: NanoUsd,
    /// The limit: the key's quota, or the low mark of the balance.
    pub limit: NanoUsd,
    /// The time at which the charged request was admitted, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The number of times that the notice was claimed for delivery, including this time.
    pub tries: u32,
}

/// The notices that were claimed from an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenNotices {
    /// The notices that must be delivered now. No other node can claim them before the pause is over.
    pub notices: Vec<Notice>,
    /// The number of notices that were dropped since the last claim because there were too many.
    pub lost: u64,
    /// The number of milliseconds after which the next claim should be made; `None` if the account has no notices.
    pub next_in_ms: Option<i64>,
}

impl NoticeId {
    /// Returns the notice's name in a store.
    pub(crate) fn store_name(&self) -> String {
        match self {
            Self::Quota {
                percent,
                period,
                quota,
                key,
            } => format!("q:{percent}:{period}:{}:{key}", quota.nanos()),
            Self::Balance { seq, node } => format!("b:{seq}:{}", node.as_str()),
        }
    }

    /// Parses the name of a notice in a store; `None` if `text` is not such a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let of = match parts.next()? {
            "q" => Self::Quota {
                percent: parts.next()?.parse().ok()?,
                period: parts.next()?.parse().ok()?,
                quota: NanoUsd::from_nanos(parts.next()?.parse().ok()?),
                key: KeyId::parse(parts.next()?).ok()?,
            },
            "b" => Self::Balance {
                seq: parts.next()?.parse().ok()?,
                node: NodeId::parse(parts.next()?)?,
            },
            _ => return None,
        };
        parts.next().is_none().then_some(of)
    }
}

/// Returns the percentages of a quota that are reached when the spending rises from `before` to `after`.
pub(crate) fn reached_percents(quota: NanoUsd, before: NanoUsd, after: NanoUsd) -> impl Iterator<Item = u8> {
    let is_reached = move |percent: &u8| {
        let part = part_of(quota, *percent);
        before < part && part <= after
    };
    PERCENTS.into_iter().filter(is_reached)
}

/// Returns a percentage of a quota, rounded down. The computation uses only integers that a double represents exactly.
fn part_of(quota: NanoUsd, percent: u8) -> NanoUsd {
    let (quota, percent) = (quota.nanos(), i64::from(percent));
    NanoUsd::from_nanos(
        (quota / 100)
            .saturating_mul(percent)
            .saturating_add(quota % 100 * percent / 100),
    )
}

/// A notice as an account stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredNotice {
    /// The value that was reached; see [`Notice::reached`].
    pub reached: NanoUsd,
    /// The limit; see [`Notice::limit`].
    pub limit: NanoUsd,
    /// The time of the charged request; see [`Notice::at_ms`].
    pub at_ms: i64,
    /// The number of times that the notice was claimed.
    pub tries: u32,
    /// The time at which the notice becomes due, in milliseconds since the Unix epoch.
    pub due_ms: i64,
}

impl StoredNotice {
    /// Returns the notice for delivery.
    pub(crate) fn to_notice(self, id: NoticeId) -> Notice {
        Notice {
            id,
            reached: self.reached,
            limit: self.limit,
            at_ms: self.at_ms,
            tries: self.tries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ledger::ids::NodeId;

    fn of(seq: u64) -> NoticeId {
        NoticeId::Balance {
            seq,
            node: NodeId::generate(&mut rand::rng()),
        }
    }

    #[test]
    fn what_is_not_told_comes_again_after_longer_and_longer_pauses() {
        let mut notices = Notices::default();
        let one = of(1);
        notices.record(&one, NanoUsd::ZERO, NanoUsd::ZERO, 5);
        notices.record(&one, NanoUsd::MAX, NanoUsd::ZERO, 6);
        let mut now = 1000;
        for (tries, pause) in [
            (1, 10),
            (2, 20),
            (3, 40),
            (4, 80),
            (5, 160),
            (6, 320),
            (7, 640),
            (8, 640),
        ] {
            let taken = notices.claim_due(10, now);
            let seen: Vec<_> = taken.notices.iter().map(|one| (one.tries, one.at_ms)).collect();
            assert_eq!((seen, taken.next_in_ms), (vec![(tries, 5)], Some(pause)));
            assert_eq!(
                notices.claim_due(10, now + pause - 1).notices,
                [],
                "nobody else takes it"
            );
            now += pause;
        }
        assert!(notices.acknowledge(std::slice::from_ref(&one)) && !notices.acknowledge(&[one]));
        assert_eq!(notices.claim_due(10, now), TakenNotices::default());
    }

    #[test]
    fn few_are_taken_at_once_and_those_that_find_no_room_are_counted() {
        let mut notices = Notices::default();
        for seq in 0..300 {
            notices.record(&of(seq), NanoUsd::ZERO, NanoUsd::ZERO, -i64::try_from(seq).unwrap());
        }
        let taken = notices.claim_due(10, 0);
        let times: Vec<i64> = taken.notices.iter().map(|one| one.at_ms).collect();
        assert_eq!(times, (-255..=-248).collect::<Vec<_>>(), "the earliest");
        assert_eq!((taken.lost, taken.next_in_ms), (300 - 256, Some(0)), "others wait");
        assert_eq!(notices.claim_due(10, 0).lost, 0, "said once");
    }

    #[test]
    fn each_part_is_reached_once_on_the_way_through_a_quota() {
        let usd = NanoUsd::from_nanos;
        let parts = |quota, before, after| reached_percents(usd(quota), usd(before), usd(after)).collect::<Vec<_>>();
        assert_eq!(parts(1000, 0, 499), [0; 0]);
        assert_eq!(parts(1000, 499, 800), [50, 75, 80]);
        assert_eq!(parts(1000, 800, 999), [90, 95]);
        assert_eq!(parts(1000, 999, 5000), [100]);
        assert_eq!(
            parts(1000, 1000, 9000),
            [0; 0],
            "what is over already is not told again"
        );
        assert_eq!(parts(0, 0, 10), [0; 0], "nothing is spent of nothing");
        assert_eq!(parts(NanoUsd::MAX.nanos(), 0, NanoUsd::MAX.nanos()), PERCENTS);
        // Rounded down: 80 % of 7 are 5.
        assert_eq!((part_of(usd(7), 80), part_of(usd(199), 95)), (usd(5), usd(189)));
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let key = KeyId::parse("key_0000000000000001").unwrap();
        let quota = NoticeId::Quota {
            percent: 80,
            period: "w2026W47".parse().unwrap(),
            quota: NanoUsd::from_nanos(5),
            key,
        };
        let balance = NoticeId::Balance {
            seq: 7,
            node: NodeId::generate(&mut rand::rng()),
        };
        assert_eq!(quota.store_name(), "q:80:w2026W47:5:key_0000000000000001");
        for of in [quota, balance] {
            assert_eq!(NoticeId::parse(&of.store_name()), Some(of));
        }
        for wrong in [
            "",
            "q:80",
            "x:1",
            "b:1",
            "b:x:y",
            "q:80:all:5:key_0000000000000001:more",
        ] {
            assert_eq!(NoticeId::parse(wrong), None, "{wrong}");
        }
    }
}

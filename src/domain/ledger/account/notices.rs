//! The notices that an account stores until they are acknowledged. While a node has claimed a notice, no other node can claim it.
//! Because that node may fail, a notice that is not acknowledged becomes due again after a pause, which doubles each time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::{
    ledger::{
        account::{Account, bounded, charge},
        ids::NodeId,
        notice::{NoticeId, StoredNotice, TakenNotices, reached_percents},
        period::Period,
        step::Settlement,
    },
    money::NanoUsd,
};

/// The maximum number of notices that an account stores. Further notices are dropped and counted as lost.
pub(crate) const NOTICES_MAX: usize = 256;
/// The maximum number of notices in one claim. Those of the earliest requests are first.
pub(crate) const TAKEN_MAX: usize = 8;
/// The maximum number of times that the pause doubles.
pub(crate) const DOUBLINGS_MAX: u32 = 6;

/// The notices of one account, by [`NoticeId::store_name`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notices {
    kept: BTreeMap<String, StoredNotice>,
    lost: u64,
}

impl Notices {
    /// Adds a notice, unless the account already has it.
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

    /// Claims the notices that are due, as [`crate::store::ledger::LedgerStore::take_notices`] describes.
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

    /// Removes notices that were delivered. Returns whether the account had one of them.
    pub(crate) fn acknowledge(&mut self, told: &[NoticeId]) -> bool {
        let before = self.kept.len();
        for of in told {
            self.kept.remove(&of.store_name());
        }
        self.kept.len() < before
    }

    /// Whether the account has no notices and none was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.lost == 0
    }
}

impl Account {
    /// Returns the notices that are not acknowledged yet.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns the notices for claiming and acknowledging.
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// Returns the account with these notices, which were read from a store.
    pub(crate) fn with_notices(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Records the notices of an applied settlement: one for each threshold of the key's quota that it has reached, and one if it
    /// has brought the balance to its low mark. `(node, seq)` is the settlement's step, and `before` is the balance before it.
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
}

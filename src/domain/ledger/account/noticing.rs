//! Notes what a settlement has reached: a part of its key's quota, a balance that is low.

use super::{
    Account,
    amounts::{bounded, charge},
    notices::Notices,
};
use crate::domain::{
    ledger::{
        node::NodeId,
        notice::{NoticeOf, reached},
        period::Period,
        step::Settlement,
    },
    money::NanoUsd,
};

impl Account {
    /// What waits to be told.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The same, to take from it or to forget what was told.
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// The account with what waited to be told when it was kept.
    pub(crate) fn with_notices(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Notes what a settlement that was applied, a node's step of this number, has reached. `before` is the balance before it.
    pub(super) fn note_reached(&mut self, (node, seq): (&NodeId, u64), settlement: &Settlement, before: NanoUsd) {
        let (cost, at_ms) = (charge(settlement), settlement.at_ms);
        if cost == NanoUsd::ZERO {
            return;
        }
        if let Some(key) = self.keys.get(&settlement.key)
            && let Some(quota) = key.terms().quota.map(bounded)
        {
            let period = Period::of(key.terms().reset, at_ms);
            let after = key.spent(period);
            for percent in reached(quota, after.saturating_sub(cost), after) {
                let of = NoticeOf::Quota {
                    percent,
                    period,
                    quota,
                    key: settlement.key.clone(),
                };
                self.notices.note(&of, after, quota, at_ms);
            }
        }
        if let Some(summary) = &self.summary
            && let Some(low) = summary.record.terms.low_balance.map(bounded)
            && before > low
            && summary.balance <= low
        {
            let node = node.clone();
            self.notices
                .note(&NoticeOf::Balance { seq, node }, summary.balance, low, at_ms);
        }
    }
}

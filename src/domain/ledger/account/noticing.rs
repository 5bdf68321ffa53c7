//! Records the notices of a settlement: a threshold of its key's quota reached, a balance that has become low.

use super::{
    Account,
    amounts::{bounded, charge},
    notices::Notices,
};
use crate::domain::{
    ledger::{
        node::NodeId,
        notice::{NoticeId, reached_percents},
        period::Period,
        step::Settlement,
    },
    money::NanoUsd,
};

impl Account {
    /// The notices that are not yet acknowledged.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The notices, for claiming and acknowledging.
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// The account with these notices, as they were stored.
    pub(crate) fn with_notices(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Records the notices of an applied settlement: each threshold of the key's quota that it has reached, and a balance that
    /// it has made low. `(node, seq)` is its step, `before` the balance before it.
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

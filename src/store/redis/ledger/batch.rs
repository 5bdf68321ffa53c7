//! Settlements that a script applies as a batch. Requests from leases cause many settlements, but usually with few different keys
//! and models. So the sums of these settlements are sent instead of each settlement. If rows are kept, the rows are sent too.
//!
//! Nothing depends on the order of these settlements except notices and the bounds of token buckets. If the order could matter,
//! the script reports this and changes nothing. Each settlement is then sent separately.

use super::{arguments, daily_sums};
use crate::domain::ledger::consumption::Row;
use crate::domain::ledger::daily_sums::{Sums, day_of};
use crate::domain::ledger::lease::day_of as day_of_ms;
use crate::domain::ledger::{AccountChange, Settlement, Step};
use crate::domain::money::NanoUsd;
use crate::store::StoreError;
use crate::store::redis::scripts::ScriptCall;

/// One item of a call of `apply.lua`.
pub(super) enum BatchItem<'a> {
    /// A single step.
    One(&'a Step),
    /// Consecutive settlements of requests that were admitted from leases.
    Batch(SettlementBatch<'a>),
}

/// Settlements with consecutive numbers, whose requests ended on the same day.
pub(super) struct SettlementBatch<'a> {
    /// The number of the first settlement.
    first: u64,
    /// The number that follows the number of the last settlement.
    next: u64,
    day: i64,
    groups: Vec<SettlementGroup<'a>>,
    rows: Vec<&'a Row>,
}

/// The settlements with the same key, lease, day of admission, model and tags.
struct SettlementGroup<'a> {
    /// One of the group's settlements.
    sample: &'a Settlement,
    row: &'a Row,
    cost: NanoUsd,
    sums: Sums,
    tokens: TokenCorrections,
}

/// Corrections of token buckets, summed over a group's settlements.
#[derive(Default)]
struct TokenCorrections {
    /// The number of tokens that were estimated but not used, summed over the settlements that used fewer than estimated.
    fewer: u64,
    /// The number of tokens that were used beyond the estimate, summed over the settlements that used more than estimated.
    more: u64,
    estimated_max: u64,
    used_max: u64,
}

/// Returns the items for some steps, in order.
pub(super) fn batch_items(steps: &[Step]) -> Vec<BatchItem<'_>> {
    let mut pieces: Vec<BatchItem<'_>> = Vec::new();
    for step in steps {
        let Some((settlement, row)) = leased_settlement(step) else {
            pieces.push(BatchItem::One(step));
            continue;
        };
        match pieces.last_mut() {
            Some(BatchItem::Batch(together)) if together.is_next(step, row) => together.add(settlement, row),
            _ => {
                let mut together = SettlementBatch {
                    first: step.seq,
                    next: step.seq,
                    day: day_of(row),
                    groups: Vec::new(),
                    rows: Vec::new(),
                };
                together.add(settlement, row);
                pieces.push(BatchItem::Batch(together));
            }
        }
    }
    pieces
}

/// Adds the arguments of `apply.lua` for these items, with their rows if rows are kept.
pub(super) fn add_arguments(
    call: &mut ScriptCall<'_>,
    pieces: &[BatchItem<'_>],
    keeps_rows: bool,
) -> Result<(), StoreError> {
    pieces.iter().try_for_each(|piece| match piece {
        BatchItem::One(step) => arguments::step(call, step, keeps_rows),
        BatchItem::Batch(together) => together.add_arguments(call, keeps_rows),
    })
}

/// Whether a step settles a request that was admitted from a lease.
pub(super) fn is_leased(step: &Step) -> bool {
    leased_settlement(step).is_some()
}

fn leased_settlement(step: &Step) -> Option<(&Settlement, &Row)> {
    match &step.change {
        AccountChange::Settle(settlement) if settlement.lease.is_some() => {
            Some((settlement, settlement.row.as_deref()?))
        }
        _ => None,
    }
}

impl<'a> SettlementBatch<'a> {
    fn is_next(&self, step: &Step, row: &Row) -> bool {
        step.seq == self.next && day_of(row) == self.day
    }

    fn add(&mut self, settlement: &'a Settlement, row: &'a Row) {
        self.next = self.next.saturating_add(1);
        self.rows.push(row);
        let known = self.groups.iter_mut().find(|group| group.matches(settlement, row));
        let sums = Sums::of(row);
        let cost = arguments::charge(settlement.cost);
        match known {
            Some(group) => {
                group.cost = group.cost.saturating_add(cost).min(NanoUsd::MAX);
                group.sums = group.sums.plus(&sums);
                group.tokens.add(settlement);
            }
            None => {
                let mut tokens = TokenCorrections::default();
                tokens.add(settlement);
                self.groups.push(SettlementGroup {
                    sample: settlement,
                    row,
                    cost,
                    sums,
                    tokens,
                });
            }
        }
    }

    /// Adds the arguments of `apply.lua` for the batch: the first number, the number of settlements, their day, the numbers of
    /// groups and rows, then each group and each row.
    fn add_arguments(&self, call: &mut ScriptCall<'_>, keeps_rows: bool) -> Result<(), StoreError> {
        let rows: &[&Row] = if keeps_rows { &self.rows } else { &[] };
        call.arg(self.first).arg("together").arg(self.rows.len());
        call.arg(self.day).arg(self.groups.len()).arg(rows.len());
        for group in &self.groups {
            group.add_arguments(call);
        }
        for row in rows {
            call.arg(arguments::row(row)?);
        }
        Ok(())
    }
}

impl SettlementGroup<'_> {
    fn matches(&self, settlement: &Settlement, row: &Row) -> bool {
        self.sample.key == settlement.key
            && self.sample.lease == settlement.lease
            && day_of_ms(self.sample.at_ms) == day_of_ms(settlement.at_ms)
            && self.row.model == row.model
            && self.row.tags == row.tags
    }

    fn add_arguments(&self, call: &mut ScriptCall<'_>) {
        call.arg(self.sample.key.as_str())
            .arg(arguments::dated(self.sample.at_ms))
            .arg(self.cost.nanos());
        if let Some(lease) = &self.sample.lease {
            call.arg(lease.holder.as_str()).arg(lease.hold_name().as_str());
        }
        let tokens = &self.tokens;
        for figure in [tokens.fewer, tokens.more, tokens.estimated_max, tokens.used_max] {
            call.arg(figure);
        }
        let [model, counts] = daily_sums::sums_arguments(&self.row.model, &self.sums);
        call.arg(model).arg(counts).arg(daily_sums::tags(self.row));
    }
}

impl TokenCorrections {
    fn add(&mut self, settlement: &Settlement) {
        let estimated = arguments::tokens(settlement.tokens_estimated);
        let used = arguments::tokens(settlement.tokens_used);
        self.fewer = self.fewer.saturating_add(estimated.saturating_sub(used));
        self.more = self.more.saturating_add(used.saturating_sub(estimated));
        self.estimated_max = self.estimated_max.max(estimated);
        self.used_max = self.used_max.max(used);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::redis::Arg;

    use super::*;
    use crate::domain::ledger::lease::LeaseId;
    use crate::store::ledger::contract::{START_MS, node, row};
    use crate::store::redis::scripts::RedisScript;

    fn settled(seq: u64, key: u8, model: &str, cost: i64) -> Step {
        let mut row = row("acme", key, &format!("r{seq}"), START_MS, NanoUsd::from_nanos(cost));
        row.model = model.into();
        let lease = LeaseId {
            holder: node(7),
            number: 1,
        };
        let settlement = Settlement::of(row, 10).with_lease(Some(lease));
        Step {
            seq,
            change: AccountChange::Settle(Box::new(settlement)),
        }
    }

    /// The shape of an item: the numbers of its steps, and for each of its groups the number of rows and their cost.
    type Shape = (std::ops::Range<u64>, Vec<(u64, i64)>);

    fn shapes(steps: &[Step]) -> Vec<Shape> {
        let shape = |piece: &BatchItem<'_>| match piece {
            BatchItem::One(step) => (step.seq..step.seq + 1, Vec::new()),
            BatchItem::Batch(together) => {
                let groups = together.groups.iter();
                let groups = groups.map(|group| (group.sums.requests, group.cost.nanos()));
                (together.first..together.next, groups.collect())
            }
        };
        batch_items(steps).iter().map(shape).collect()
    }

    #[test]
    fn settlements_in_leases_behind_each_other_are_taken_together_by_key_and_model() {
        let steps = [
            settled(4, 1, "m", 10),
            settled(5, 2, "m", 20),
            settled(6, 1, "m", 30),
            settled(7, 1, "n", 40),
        ];
        assert_eq!(shapes(&steps), [(4..8, vec![(2, 40), (1, 20), (1, 40)])]);
    }

    #[test]
    fn what_is_no_settlement_in_a_lease_or_no_next_one_parts_them() {
        let mut alone = settled(3, 1, "m", 5);
        if let AccountChange::Settle(settlement) = &mut alone.change {
            settlement.lease = None;
        }
        let mut tomorrow = settled(5, 1, "m", 6);
        if let AccountChange::Settle(settlement) = &mut tomorrow.change
            && let Some(row) = &mut settlement.row
        {
            Arc::make_mut(row).time_ms += 24 * 3600 * 1000;
        }
        let other = Step {
            seq: 9,
            change: AccountChange::nothing(),
        };
        let steps = [
            settled(2, 1, "m", 4),
            alone,
            settled(4, 1, "m", 5),
            tomorrow,
            settled(8, 1, "m", 7),
            other,
        ];
        assert_eq!(
            shapes(&steps),
            [
                (2..3, vec![(1, 4)]),
                (3..4, vec![]),
                (4..5, vec![(1, 5)]),
                (5..6, vec![(1, 6)]),
                (8..9, vec![(1, 7)]),
                (9..10, vec![]),
            ]
        );
    }

    #[test]
    fn no_row_is_told_where_rows_are_not_kept() {
        let mut alone = settled(1, 1, "m", 5);
        if let AccountChange::Settle(settlement) = &mut alone.change {
            settlement.lease = None;
        }
        let steps = [alone, settled(2, 1, "m", 5), settled(3, 1, "m", 5)];
        let script = RedisScript::new("return 1");
        let rows = |keeps_rows: bool| {
            let mut call = script.call();
            add_arguments(&mut call, &batch_items(&steps), keeps_rows).unwrap();
            let command = call.command();
            let words = command.args_iter();
            words
                .filter(|word| matches!(word, Arg::Simple(text) if text.starts_with(b"{")))
                .count()
        };
        assert_eq!((rows(true), rows(false)), (3, 0));
    }

    #[test]
    fn tokens_are_added_up_apart_where_fewer_and_where_more_were_used() {
        let mut tokens = TokenCorrections::default();
        for (estimated, used) in [(10, 4), (10, 30), (u64::MAX, 1)] {
            let mut settlement = Settlement::without_charge("r".into(), node_key(), 1, estimated);
            settlement.tokens_used = used;
            tokens.add(&settlement);
        }
        let most = arguments::tokens(u64::MAX);
        assert_eq!((tokens.fewer, tokens.more), (6 + most - 1, 20));
        assert_eq!((tokens.estimated_max, tokens.used_max), (most, 30));
    }

    fn node_key() -> crate::domain::keys::KeyId {
        crate::store::ledger::contract::key_id(1)
    }
}

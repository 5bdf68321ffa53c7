//! Finds steps that damage has destroyed. A request whose settlement may have been one of them must not be charged twice.

use std::{collections::HashMap, ops::Range};

use smol_str::SmolStr;

use crate::{domain::quick_map::QuickMap, journal::position::Position};

/// The missing steps that a start has found so far. A request whose settlement may be one of them must not be charged twice.
/// Segments are reported in their order.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The position of the last damage.
    damage: Option<Position>,
    /// The last step of each account, with its position.
    last: HashMap<SmolStr, (u64, Position)>,
    /// By account: the numbers of the missing steps, with the position of the damage.
    missing: HashMap<SmolStr, Vec<(Range<u64>, Position)>>,
}

impl Gaps {
    /// Damage was found at this position.
    pub(super) fn on_damage(&mut self, at: Position) {
        self.damage = Some(at);
    }

    /// A step was found at this position. Numbers skipped since the account's previous step are missing if damage was found in
    /// between.
    pub(super) fn on_step(&mut self, account: &str, seq: u64, at: Position) {
        let (before, stood) = self.last.get(account).copied().unwrap_or((0, Position::START));
        if let Some(damage) = self.damage.filter(|damage| *damage > stood)
            && seq > before + 1
        {
            let missing = (before + 1..seq, damage);
            self.missing.entry(account.into()).or_default().push(missing);
        }
        self.last.insert(account.into(), (seq, at));
    }

    /// A segment was restored from its index, with the first and last step of each account in it.
    pub(super) fn on_index(&mut self, segment: u64, steps: &QuickMap<SmolStr, (u64, u64)>) {
        let at = Position { segment, offset: 0 };
        for (account, (first, last)) in steps {
            self.on_step(account, *first, at);
            self.last.insert(account.clone(), (*last, at));
        }
    }

    /// The missing step that may be the settlement of a request admitted at this position. Each step is returned once. The
    /// caller asks for every request once, in the order of admission.
    pub(super) fn missing_settlement(&mut self, account: &str, admitted: Position) -> Option<u64> {
        let mut missing = self.missing.get_mut(account)?.iter_mut();
        missing.find_map(|(steps, damage)| (*damage > admitted).then(|| steps.next()).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segment: u64) -> Position {
        Position { segment, offset: 64 }
    }

    #[test]
    fn a_missing_step_stands_for_one_request_that_was_admitted_before_the_damage() {
        let mut gaps = Gaps::default();
        gaps.on_step("a", 1, at(1));
        gaps.on_damage(at(3));
        gaps.on_step("a", 4, at(5));
        assert_eq!(gaps.missing_settlement("a", at(4)), None, "admitted behind the damage");
        assert_eq!(gaps.missing_settlement("a", at(2)), Some(2));
        assert_eq!(gaps.missing_settlement("a", at(2)), Some(3));
        assert_eq!(gaps.missing_settlement("a", at(2)), None, "two steps are missing");
        assert_eq!(gaps.missing_settlement("b", at(2)), None);
    }

    #[test]
    fn numbers_that_were_left_out_without_damage_are_not_missing() {
        let mut gaps = Gaps::default();
        gaps.on_damage(at(1));
        gaps.on_step("a", 1, at(2));
        gaps.on_step("a", 9, at(3));
        gaps.on_index(4, &QuickMap::from_iter([("a".into(), (12, 20))]));
        gaps.on_step("a", 21, at(5));
        assert_eq!(gaps.missing_settlement("a", Position::START), None);
        gaps.on_damage(at(6));
        gaps.on_index(7, &QuickMap::from_iter([("a".into(), (23, 24))]));
        assert_eq!(gaps.missing_settlement("a", at(5)), Some(22));
        assert_eq!(gaps.missing_settlement("a", at(5)), None);
    }
}

//! Steps that damage has destroyed. A request whose settlement may have been among them must not be charged twice.

use std::{collections::HashMap, ops::Range};

use smol_str::SmolStr;

use crate::{domain::quick_map::QuickMap, journal::position::Position};

/// What a start has found missing so far; segments are told of in their order.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The last damaged place.
    damage: Option<Position>,
    /// The last step of each account, and where it stands.
    last: HashMap<SmolStr, (u64, Position)>,
    /// By account: the numbers of the missing steps, and the damaged place that had them.
    missing: HashMap<SmolStr, Vec<(Range<u64>, Position)>>,
}

impl Gaps {
    /// Something at this place is damaged.
    pub(super) fn damaged(&mut self, at: Position) {
        self.damage = Some(at);
    }

    /// A step stands at this place. Numbers that were left out since the one before are missing if damage lies between.
    pub(super) fn step(&mut self, account: &str, seq: u64, at: Position) {
        let (before, stood) = self.last.get(account).copied().unwrap_or((0, Position::START));
        if let Some(damage) = self.damage.filter(|damage| *damage > stood)
            && seq > before + 1
        {
            let missing = (before + 1..seq, damage);
            self.missing.entry(account.into()).or_default().push(missing);
        }
        self.last.insert(account.into(), (seq, at));
    }

    /// A segment was taken over from its index, with the first and the last step of each account in it.
    pub(super) fn indexed(&mut self, segment: u64, steps: &QuickMap<SmolStr, (u64, u64)>) {
        let at = Position { segment, offset: 0 };
        for (account, (first, last)) in steps {
            self.step(account, *first, at);
            self.last.insert(account.clone(), (*last, at));
        }
    }

    /// The missing step that may be the settlement of a request that was admitted at this place. Each is asked for once, in
    /// the order of their admission: there are no more such requests than missing steps.
    pub(super) fn settled_by(&mut self, account: &str, admitted: Position) -> Option<u64> {
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
        gaps.step("a", 1, at(1));
        gaps.damaged(at(3));
        gaps.step("a", 4, at(5));
        assert_eq!(gaps.settled_by("a", at(4)), None, "admitted behind the damage");
        assert_eq!(gaps.settled_by("a", at(2)), Some(2));
        assert_eq!(gaps.settled_by("a", at(2)), Some(3));
        assert_eq!(gaps.settled_by("a", at(2)), None, "two steps are missing");
        assert_eq!(gaps.settled_by("b", at(2)), None);
    }

    #[test]
    fn numbers_that_were_left_out_without_damage_are_not_missing() {
        let mut gaps = Gaps::default();
        gaps.damaged(at(1));
        gaps.step("a", 1, at(2));
        gaps.step("a", 9, at(3));
        gaps.indexed(4, &QuickMap::from_iter([("a".into(), (12, 20))]));
        gaps.step("a", 21, at(5));
        assert_eq!(gaps.settled_by("a", Position::START), None);
        gaps.damaged(at(6));
        gaps.indexed(7, &QuickMap::from_iter([("a".into(), (23, 24))]));
        assert_eq!(gaps.settled_by("a", at(5)), Some(22));
        assert_eq!(gaps.settled_by("a", at(5)), None);
    }
}

//! Notices before a quota or a balance runs out: that a key has spent a part of its quota, or that a balance has become low.
//!
//! A ledger records a notice in the same atomic step as the charge that caused it. Spending in a period only grows, and a step is
//! applied once. So each part of a quota is reported once per period, over all nodes.

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{KeyId, terms::PERCENTS},
    ledger::{ids::NodeId, period::Period},
    money::NanoUsd,
};

/// The subject of a notice, which identifies the notice: there is only one notice with the same subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeId {
    /// A key has spent a part of its quota.
    Quota {
        /// The part of the quota in percent, which is one of [`PERCENTS`].
        percent: u8,
        /// The period of the quota.
        period: Period,
        /// The amount of the quota.
        quota: NanoUsd,
        /// The id of the key.
        key: KeyId,
    },
    /// A charge has brought the balance to its low mark or below it.
    Balance {
        /// The number of the step that made the charge.
        seq: u64,
        /// The node of that step.
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
    /// How many times the notice was claimed for delivery, including this time.
    pub tries: u32,
}

/// The notices that were claimed from an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenNotices {
    /// The notices that are to be delivered now. No other node can claim them until the pause after this try is over.
    pub notices: Vec<Notice>,
    /// The number of notices that were dropped for lack of room since the last claim.
    pub lost: u64,
    /// The number of milliseconds after which to claim again; `None` if the account has no notices.
    pub next_in_ms: Option<i64>,
}

impl NoticeId {
    /// Returns the subject's name in a store.
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

    /// Parses the name of a subject in a store; `None` if `text` is not such a name.
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

/// Returns the percentages of a quota that spending has reached when it rose from `before` to `after`.
pub(crate) fn reached_percents(quota: NanoUsd, before: NanoUsd, after: NanoUsd) -> impl Iterator<Item = u8> {
    let is_reached = move |percent: &u8| {
        let part = part_of(quota, *percent);
        before < part && part <= after
    };
    PERCENTS.into_iter().filter(is_reached)
}

/// Returns a percentage of a quota, rounded down. It is computed with integers that a double represents exactly.
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
    /// How many times the notice was claimed.
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

//! What somebody is told before it is over: that a key has spent a part of its quota, that a balance has become low.
//!
//! A ledger notes it in the same atomic step as the charge that made it so. Spending in a period only grows, and a step is
//! applied once: so each part of a quota is noted once in a period, over all nodes.

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{key::KeyId, thresholds::PERCENTS},
    ledger::{node::NodeId, period::Period},
    money::NanoUsd,
};

/// What a notice is about, and by that the notice: two of the same are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeOf {
    /// A key has spent this part of its quota.
    Quota {
        /// One of [`PERCENTS`].
        percent: u8,
        /// The period that the quota counts in.
        period: Period,
        /// The quota.
        quota: NanoUsd,
        /// The key.
        key: KeyId,
    },
    /// A charge has brought the balance to what counts as low, or below.
    Balance {
        /// The charge: this step of the node.
        seq: u64,
        /// The node.
        node: NodeId,
    },
}

/// A notice that waits to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub of: NoticeOf,
    /// What was reached: the key's spending in the period, or the balance.
    pub reached: NanoUsd,
    /// What it was measured by: the quota, or what counts as low.
    pub limit: NanoUsd,
    /// When the request was admitted whose charge it was, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// How often it was taken to be told, this time included.
    pub tries: u32,
}

/// What waits at an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenNotices {
    /// Those that are to be told now. Nobody else is given them for as long as the pause after this try is.
    pub notices: Vec<Notice>,
    /// How many found no room since the last time.
    pub lost: u64,
    /// In how many milliseconds to ask again; `None`: none waits.
    pub next_in_ms: Option<i64>,
}

impl NoticeOf {
    /// Its name in a store.
    pub(crate) fn text(&self) -> String {
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

    /// Reads such a name; `None`: it is none.
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

/// The parts of a quota that are reached when spending goes from `before` to `after`.
pub(crate) fn reached(quota: NanoUsd, before: NanoUsd, after: NanoUsd) -> impl Iterator<Item = u8> {
    let is_reached = move |percent: &u8| {
        let part = part_of(quota, *percent);
        before < part && part <= after
    };
    PERCENTS.into_iter().filter(is_reached)
}

/// A part of a quota, rounded down, by numbers that a double counts exactly.
fn part_of(quota: NanoUsd, percent: u8) -> NanoUsd {
    let (quota, percent) = (quota.nanos(), i64::from(percent));
    NanoUsd::from_nanos(
        (quota / 100)
            .saturating_mul(percent)
            .saturating_add(quota % 100 * percent / 100),
    )
}

/// How an account keeps a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// See [`Notice::reached`].
    pub reached: NanoUsd,
    /// See [`Notice::limit`].
    pub limit: NanoUsd,
    /// See [`Notice::at_ms`].
    pub at_ms: i64,
    /// How often it was taken.
    pub tries: u32,
    /// From when on it may be taken, in milliseconds since the Unix epoch.
    pub due_ms: i64,
}

impl Waiting {
    /// The notice, as it is told.
    pub(crate) fn notice(&self, of: NoticeOf) -> Notice {
        Notice {
            of,
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
        let parts = |quota, before, after| reached(usd(quota), usd(before), usd(after)).collect::<Vec<_>>();
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
        let quota = NoticeOf::Quota {
            percent: 80,
            period: "w2026W47".parse().unwrap(),
            quota: NanoUsd::from_nanos(5),
            key,
        };
        let balance = NoticeOf::Balance {
            seq: 7,
            node: NodeId::generate(&mut rand::rng()),
        };
        assert_eq!(quota.text(), "q:80:w2026W47:5:key_0000000000000001");
        for of in [quota, balance] {
            assert_eq!(NoticeOf::parse(&of.text()), Some(of));
        }
        for wrong in [
            "",
            "q:80",
            "x:1",
            "b:1",
            "b:x:y",
            "q:80:all:5:key_0000000000000001:more",
        ] {
            assert_eq!(NoticeOf::parse(wrong), None, "{wrong}");
        }
    }
}

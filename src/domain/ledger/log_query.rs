//! Queries of the consumption log: days, filters, and the order of rows. The module also compares the log backends of the nodes
//! that share a store. It uses marks that do not contain the address of a log backend.

use std::{collections::BTreeMap, ops::RangeInclusive};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::{
    keys::KeyId,
    ledger::{
        consumption::Row,
        ids::{NodeId, Tag},
    },
};

/// The number of an account's rows on one day, in a store that is the log backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDay {
    /// The day in UTC, in days since the Unix epoch.
    pub day: i64,
    /// The number of rows in the store.
    pub rows: u64,
}

const DAY_MS: i64 = 24 * 3_600_000;

/// A filter for rows. A row matches if it meets every condition that is set; `None` means that a condition is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The account that paid.
    pub account: Option<String>,
    /// The key of the request.
    pub key: Option<KeyId>,
    /// The name of a model. A row matches if the client requested this model, or if this model served the request.
    pub model: Option<String>,
    /// The range of the final status.
    pub status: Option<RangeInclusive<u16>>,
    /// A tag of the request.
    pub tag: Option<Tag>,
    /// The start of the time range, in milliseconds since the Unix epoch. A row matches if its request ended at this time or
    /// later.
    pub since_ms: i64,
    /// The end of the time range, in milliseconds since the Unix epoch. A row matches if its request ended before this time.
    pub until_ms: i64,
}

impl LogFilter {
    /// Creates a filter for the rows of all requests that ended at or after `since_ms` and before `until_ms`, in milliseconds
    /// since the Unix epoch.
    pub fn between(since_ms: i64, until_ms: i64) -> Self {
        Self {
            account: None,
            key: None,
            model: None,
            status: None,
            tag: None,
            since_ms,
            until_ms,
        }
    }

    /// Creates a filter for the rows of an account's requests that ended on `day` (UTC), in days since the Unix epoch.
    pub fn of_day(account: &str, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            account: Some(account.to_owned()),
            ..Self::between(begin, begin.saturating_add(DAY_MS))
        }
    }

    /// Returns the filter with its time range limited to `day`, in days since the Unix epoch.
    pub(crate) fn within_day(&self, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            since_ms: self.since_ms.max(begin),
            until_ms: self.until_ms.min(begin.saturating_add(DAY_MS)),
            ..self.clone()
        }
    }

    /// Whether a row matches the filter.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        (self.since_ms..self.until_ms).contains(&row.time_ms)
            && self.account.as_ref().is_none_or(|account| *account == row.account)
            && self.key.as_ref().is_none_or(|key| *key == row.key_id)
            && self
                .model
                .as_ref()
                .is_none_or(|model| *model == row.model || *model == row.model_asked)
            && self.status.as_ref().is_none_or(|status| status.contains(&row.status))
            && self.tag.as_ref().is_none_or(|tag| row.tags.contains(tag))
    }

    /// Whether this filter equals `other`, except that its time range may begin later. If so, all rows that match this filter
    /// also match `other`.
    pub(crate) fn is_suffix_of(&self, other: &Self) -> bool {
        self.since_ms >= other.since_ms
            && *self
                == Self {
                    since_ms: self.since_ms,
                    ..other.clone()
                }
    }

    /// Returns the first day of the time range (UTC), in days since the Unix epoch.
    pub(crate) fn first_day(&self) -> i64 {
        self.since_ms.div_euclid(DAY_MS)
    }

    /// Returns the last day of the time range (UTC), in days since the Unix epoch.
    pub(crate) fn last_day(&self) -> i64 {
        self.until_ms.saturating_sub(1).div_euclid(DAY_MS)
    }
}

/// The position of a row among all rows of its day (UTC). Rows are sorted by account, then by the time at which the request
/// ended, then by the unique request id. The position depends only on the row, so it is the same in every log backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The account that paid. It is empty in the position before all rows.
    pub account: SmolStr,
    /// The time at which the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The request id that weir has assigned.
    pub request_id: SmolStr,
}

impl LogPosition {
    /// Returns the position of a row.
    pub fn of(row: &Row) -> Self {
        Self {
            account: row.account.clone(),
            time_ms: row.time_ms,
            request_id: row.request_id.clone(),
        }
    }

    /// Returns the position before all rows of an account.
    pub(crate) fn before_account(account: &str) -> Self {
        Self {
            account: account.into(),
            ..Self::default()
        }
    }

    /// Changes the position to that of a row.
    pub(crate) fn move_to(&mut self, row: &Row) {
        self.account.clone_from(&row.account);
        self.time_ms = row.time_ms;
        self.request_id.clone_from(&row.request_id);
    }

    /// Returns the sort key of the position.
    pub(crate) fn sort_key(&self) -> (&str, i64, &str) {
        (&self.account, self.time_ms, &self.request_id)
    }
}

/// Returns the sort key of a row among the rows of its day.
pub(crate) fn row_sort_key(row: &Row) -> (&str, i64, &str) {
    (&row.account, row.time_ms, &row.request_id)
}

/// The maximum number of nodes that a warning names.
const NAMED_MAX: usize = 5;
/// The length of a mark's digest, in hexadecimal digits.
const DIGEST_CHARS: usize = 16;
/// The maximum length of a mark's kind, in bytes.
const KIND_BYTES_MAX: usize = 32;

/// The kind of a log backend, and a digest of its address. Nodes with equal marks keep their rows in the same log backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHomeMark(SmolStr);

impl LogHomeMark {
    /// Creates the mark of a log backend. `kind` is its name in warnings, such as `postgres`.
    pub(crate) fn new(kind: &str, address: &str) -> Self {
        let hash = Sha256::digest(address);
        let first = hash.first_chunk().copied().unwrap_or_default();
        Self(format_smolstr!("{:016x} {kind}", u64::from_be_bytes(first)))
    }

    /// Parses a mark in the form that [`LogHomeMark::as_str`] returns; `None` if `text` does not have that form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (digest, kind) = text.split_once(' ')?;
        let is_digest = digest.len() == DIGEST_CHARS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b' ' | b'(' | b')');
        let is_kind = (1..=KIND_BYTES_MAX).contains(&kind.len()) && kind.bytes().all(is_plain);
        (is_digest && is_kind).then(|| Self(text.into()))
    }

    /// Returns the mark as a string: the digest, a space and the kind.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn kind(&self) -> &str {
        self.0.split_once(' ').map_or("", |(_, kind)| kind)
    }
}

/// The log backend of a node, and its former log backend, from which it still reads rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLogHomes {
    pub(crate) home: LogHomeMark,
    /// The former log backend; `None` if none is configured.
    pub(crate) former: Option<LogHomeMark>,
}

impl NodeLogHomes {
    /// Returns a warning about those of `nodes` that keep the log in a log backend from which this node does not read; `None` if
    /// there are no such nodes. `this` is this node's name in the warning.
    pub(crate) fn warning(&self, this: &str, nodes: &BTreeMap<NodeId, LogHomeMark>) -> Option<String> {
        let is_read = |mark: &LogHomeMark| *mark == self.home || self.former.as_ref() == Some(mark);
        let elsewhere: Vec<_> = nodes.iter().filter(|(_, mark)| !is_read(mark)).collect();
        if elsewhere.is_empty() {
            return None;
        }
        let own = self.home.kind();
        let named = elsewhere.iter().take(NAMED_MAX).map(|(node, mark)| {
            let place = match mark.kind() == own {
                true => "the same kind at another address",
                false => mark.kind(),
            };
            format!("{node} in {place}")
        });
        let mut named = named.collect::<Vec<_>>().join(", ");
        if elsewhere.len() > NAMED_MAX {
            named = format!("{named} and {} others", elsewhere.len() - NAMED_MAX);
        }
        Some(format!(
            "the nodes of this store keep the log in different places: {this} in {own}, {named}. None of them reads the rows of the \
             others: configure the same `[log] home` and the same address at all nodes, or set `[log] former_home` while rows are moved"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(marks: &[&LogHomeMark]) -> BTreeMap<NodeId, LogHomeMark> {
        let node = |number| NodeId::parse(&format!("node_{number:016}")).unwrap();
        (0..).map(node).zip(marks.iter().copied().cloned()).collect()
    }

    #[test]
    fn a_mark_says_the_kind_and_not_the_address() {
        let mark = LogHomeMark::new("files (bucket)", "https://s3.example.com/log");
        assert!(mark.as_str().ends_with(" files (bucket)") && !mark.as_str().contains("example"));
        assert_eq!(LogHomeMark::parse(mark.as_str()), Some(mark.clone()));
        assert_ne!(mark, LogHomeMark::new("files (bucket)", "https://s3.example.com/other"));
        for wrong in [
            "",
            "postgres",
            "0123456789abcdef ",
            "0123456789abcdeg postgres",
            "0123456789abcdef a\nb",
        ] {
            assert_eq!(LogHomeMark::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_nodes_whose_rows_are_not_read_are_warned_of() {
        let (folder, postgres) = (
            LogHomeMark::new("files (folder)", "/log"),
            LogHomeMark::new("postgres", "db"),
        );
        let other = LogHomeMark::new("postgres", "db2");
        let mut homes = NodeLogHomes {
            home: postgres.clone(),
            former: None,
        };
        assert_eq!(homes.warning("this node", &nodes(&[&postgres, &postgres])), None);
        let warning = homes
            .warning("this node", &nodes(&[&postgres, &folder, &other]))
            .unwrap();
        let named = "this node in postgres, node_0000000000000001 in files (folder), \
                     node_0000000000000002 in the same kind at another address. None";
        assert!(warning.contains(named), "{warning}");
        homes.former = Some(folder.clone());
        assert_eq!(homes.warning("this node", &nodes(&[&postgres, &folder])), None);
        let many = homes.warning("this node", &nodes(&[&other; 7])).unwrap();
        assert!(
            many.contains(" and 2 others. ") && !many.contains("node_0000000000000005"),
            "{many}"
        );
    }
}

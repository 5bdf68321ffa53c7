//! The log backends of the nodes that share a store, compared by marks that contain no address.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::ledger::ids::NodeId;

/// The maximum number of nodes that a warning names.
const NAMED_MAX: usize = 5;
/// The length of a mark's digest in hexadecimal digits.
const DIGEST_CHARS: usize = 16;
/// The maximum length of a mark's kind in bytes.
const KIND_BYTES_MAX: usize = 32;

/// The kind of a log backend, and a digest of its address. Nodes with equal marks keep their rows in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHomeMark(SmolStr);

impl LogHomeMark {
    /// Creates the mark of a log backend. `kind` is a word for warnings, such as `postgres`.
    pub(crate) fn new(kind: &str, address: &str) -> Self {
        let hash = Sha256::digest(address);
        let first = hash.first_chunk().copied().unwrap_or_default();
        Self(format_smolstr!("{:016x} {kind}", u64::from_be_bytes(first)))
    }

    /// Parses the text of a mark; `None` if weir writes no such text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (digest, kind) = text.split_once(' ')?;
        let is_digest = digest.len() == DIGEST_CHARS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b' ' | b'(' | b')');
        let is_kind = (1..=KIND_BYTES_MAX).contains(&kind.len()) && kind.bytes().all(is_plain);
        (is_digest && is_kind).then(|| Self(text.into()))
    }

    /// The mark's text: the digest, a space and the kind.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn kind(&self) -> &str {
        self.0.split_once(' ').map_or("", |(_, kind)| kind)
    }
}

/// The log backend of a node, and its former one, in which it still reads rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLogHomes {
    pub(crate) home: LogHomeMark,
    /// `None` if no former log backend is set.
    pub(crate) former: Option<LogHomeMark>,
}

impl NodeLogHomes {
    /// Returns a warning about those of `nodes` that keep the log in another place than the subject `this`, in which `this` does
    /// not read either; `None` if there are no such nodes.
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

//! A notice as its receiver reads it: JSON, with an id by which one that comes twice is known.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::domain::ledger::notice::{Notice, NoticeOf};

/// How much of the digest an id has, in bytes.
const ID_BYTES: usize = 16;

/// The id of a notice: the same each time that it is sent, by whichever node.
pub(super) fn id(account: &str, of: &NoticeOf) -> String {
    let digest = Sha256::digest(format!("{account}\n{}", of.text()));
    digest.iter().take(ID_BYTES).fold("msg_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// The body.
pub(super) fn body(account: &str, notice: &Notice) -> String {
    let at = Timestamp::from_millisecond(notice.at_ms).map_or(Value::Null, |at| json!(at.to_string()));
    let (reached, limit) = (notice.reached.to_string(), notice.limit.to_string());
    let (kind, data) = match &notice.of {
        NoticeOf::Quota {
            percent, period, key, ..
        } => (
            "quota.reached",
            json!({
                "account": account, "key": key.as_str(), "percent": percent, "period": period,
                "spent_usd": reached, "quota_usd": limit,
            }),
        ),
        NoticeOf::Balance { .. } => (
            "balance.low",
            json!({ "account": account, "balance_usd": reached, "low_balance_usd": limit }),
        ),
    };
    json!({ "type": kind, "timestamp": at, "data": data }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{keys::key::KeyId, money::NanoUsd};

    #[test]
    fn a_message_says_what_was_reached_and_has_the_same_id_each_time() {
        let of = NoticeOf::Quota {
            percent: 80,
            period: "m202611".parse().unwrap(),
            quota: NanoUsd::from_nanos(5_000_000_000),
            key: KeyId::parse("key_0000000000000001").unwrap(),
        };
        let notice = Notice {
            of: of.clone(),
            reached: NanoUsd::from_nanos(4_100_000_000),
            limit: NanoUsd::from_nanos(5_000_000_000),
            at_ms: 1_795_262_400_000,
            tries: 3,
        };
        assert_eq!(
            body("acme", &notice),
            r#"{"type":"quota.reached","timestamp":"2026-11-21T12:00:00Z","data":{"account":"acme","key":"key_0000000000000001","percent":80,"period":"m202611","spent_usd":"4.10","quota_usd":"5.00"}}"#
        );
        assert_eq!(id("acme", &of).len(), "msg_".len() + 2 * ID_BYTES);
        assert_eq!(id("acme", &of), id("acme", &of));
        assert_ne!(id("acme", &of), id("beta", &of));
    }
}

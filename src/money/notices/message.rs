//! A notice as its receiver gets it: JSON, with an id by which a repeated one is recognized.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::domain::ledger::notice::{Notice, NoticeId};

/// The bytes of the digest that an id contains.
const ID_BYTES: usize = 16;

/// The id of a notice: the same each time and from each node.
pub(super) fn id(account: &str, of: &NoticeId) -> String {
    let digest = Sha256::digest(format!("{account}\n{}", of.store_name()));
    digest.iter().take(ID_BYTES).fold("msg_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// The JSON body of a notice.
pub(super) fn body(account: &str, notice: &Notice) -> String {
    let at = Timestamp::from_millisecond(notice.at_ms).map_or(Value::Null, |at| json!(at.to_string()));
    let (reached, limit) = (notice.reached.to_string(), notice.limit.to_string());
    let (kind, data) = match &notice.id {
        NoticeId::Quota {
            percent, period, key, ..
        } => (
            "quota.reached",
            json!({
                "account": account, "key": key.as_str(), "percent": percent, "period": period,
                "spent_usd": reached, "quota_usd": limit,
            }),
        ),
        NoticeId::Balance { .. } => (
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
        let of = NoticeId::Quota {
            percent: 80,
            period: "m202611".parse().unwrap(),
            quota: NanoUsd::from_nanos(5_000_000_000),
            key: KeyId::parse("key_0000000000000001").unwrap(),
        };
        let notice = Notice {
            id: of.clone(),
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

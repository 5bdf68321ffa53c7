//! `HEAD /`, `HEAD` and `GET /api/hello`: whether the gateway is up.

use crate::domain::faults::refusal::RefusalReply;

/// The answer to `HEAD /`, and to `HEAD` and `GET /api/hello`. Claude Code sends them before its first request, without a key
/// (docs/interface.md, Endpoints), so the answer reveals nothing.
pub(crate) fn hello_reply() -> RefusalReply {
    RefusalReply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: br#"{"status":"ok"}"#.to_vec(),
    }
}

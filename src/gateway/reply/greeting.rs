//! `HEAD /`, `HEAD` and `GET /api/hello`: whether somebody is there. Claude Code asks before its first request, without a
//! key (docs/interface.md, Endpoints), so the answer says nothing about anybody.

use crate::domain::faults::refusal::Reply;

/// The answer to everyone.
pub(crate) fn reply() -> Reply {
    Reply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: br#"{"status":"ok"}"#.to_vec(),
    }
}

//! What a request is estimated at before it is sent, and what it has consumed when nobody says.

use crate::{
    domain::{catalogue::Model, json_scan::Scan, key::KeyRecord},
    gateway::{Gateway, funds::Tokens},
};

/// The estimate that a request is admitted with.
pub fn tokens(_gateway: &Gateway, _key: &KeyRecord, model: &Model, scan: &Scan, body: &[u8]) -> Tokens {
    let input = (body.len() as u64 / 4).min(model.context_tokens.unwrap_or(u64::MAX));
    Tokens {
        input,
        output: scan.output_max.unwrap_or(1024).min(1024),
    }
}

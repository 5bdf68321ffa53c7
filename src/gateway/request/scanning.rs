//! Reads the facts out of a whole body: at once if it is small, otherwise in a turn of its key, apart from the threads that
//! carry requests.

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::{
            json_scan::{self, Scan, ScanError, ScanLimits},
            protocol::Protocol,
        },
    },
    edges::clock,
    gateway::request::{body::RequestBody, body_work::KeyWork, compressed_body::FREE_BYTES},
};

/// The largest body that is scanned at once: about a millisecond of work, as much as a few requests are anyway.
const AT_ONCE_BYTES_MAX: usize = 512 * 1024;

/// Scans the body, which is charged to its key if it is large.
///
/// # Errors
/// [`Refusal::BodyInvalid`] for a body that is not one strict JSON object; [`Refusal::BodyWorkLimited`] if its key has too
/// many large ones.
pub(crate) async fn scan(
    body: &RequestBody,
    protocol: Protocol,
    limits: ScanLimits,
    work: &KeyWork,
) -> Result<Scan, Refusal> {
    let at_once = match body.is_coded() {
        true => FREE_BYTES,
        false => AT_ONCE_BYTES_MAX,
    };
    if body.bytes.len() <= at_once {
        return json_scan::scan(&body.bytes, protocol, &limits).map_err(invalid);
    }
    let turn = work.turn().await?;
    let bytes = body.bytes.clone();
    let scanning = work.apart(move || {
        let began = clock::instant();
        let scanned = json_scan::scan(&bytes, protocol, &limits);
        (scanned, clock::instant().saturating_duration_since(began))
    });
    let (scanned, mut worked) = scanning.await?;
    if body.is_coded() {
        turn.rest(&mut worked).await;
    }
    scanned.map_err(invalid)
}

fn invalid(error: ScanError) -> Refusal {
    Refusal::BodyInvalid {
        reason: error.to_string(),
    }
}

//! Reads the facts out of a whole body: at once if it is small and its key owes little, otherwise in a turn of its key, apart
//! from the threads that carry requests.

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::{
            json_scan::{self, Scan, ScanError, ScanLimits},
            protocol::Protocol,
        },
    },
    gateway::request::{
        body::RequestBody,
        body_work::{FREE_BYTES_MAX, KeyWork},
        compressed_body::AT_ONCE_DECODED_BYTES_MAX,
    },
};

/// The largest body whose work is not offloaded: usually about a millisecond, as much as a few requests take anyway.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 512 * 1024;

/// Scans the body: at once if it is small and the debt of its key is low, or else offloaded and in a turn of the key. The key is
/// charged unless the body is small. The result is boxed, because it is moved often and lives as long as the request.
///
/// # Errors
/// [`Refusal::BodyInvalid`] for a body that is not one strict JSON object; [`Refusal::BodyWorkLimited`] if the key has too many
/// large bodies.
pub(crate) async fn scan(
    body: &RequestBody,
    protocol: Protocol,
    limits: ScanLimits,
    work: &KeyWork,
) -> Result<Box<Scan>, Refusal> {
    let at_once = match body.is_coded() {
        true => AT_ONCE_DECODED_BYTES_MAX,
        false => AT_ONCE_BYTES_MAX,
    };
    let scan = |bytes: &[u8]| json_scan::scan(bytes, protocol, &limits);
    let scanned = match body.bytes.len() {
        0..=FREE_BYTES_MAX => scan(&body.bytes),
        length if length <= at_once && work.can_run_now() => work.run_charged(|| scan(&body.bytes)),
        _ => {
            let bytes = body.bytes.clone();
            work.run_in_turn(move || json_scan::scan(&bytes, protocol, &limits))
                .await?
        }
    };
    scanned.map(Box::new).map_err(invalid)
}

fn invalid(error: ScanError) -> Refusal {
    Refusal::BodyInvalid {
        reason: error.to_string(),
    }
}

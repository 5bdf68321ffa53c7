//! Messages of refusals of request bodies.

use super::echo::shortened;
use crate::domain::faults::refusal::{BodyShare, Refusal};

/// The message: what is wrong, with what, and what to do.
pub(super) fn message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::BodyTooLarge { limit_bytes } => {
            format!("The request body is larger than the {limit_bytes} bytes that are allowed. Send a smaller request.")
        }
        Refusal::BodyTooLargeDecoded { limit_bytes } => format!(
            "The decoded request body is larger than the {limit_bytes} bytes that are allowed. Send a smaller request."
        ),
        Refusal::BodyInvalid { reason } => {
            format!("The request body cannot be used: {}.", reason.trim_end_matches('.'))
        }
        Refusal::BodyEncodingUnsupported { encoding } => format!(
            "The content encoding `{}` is not supported for request bodies. Send the body without content-encoding, or in \
             one of gzip, deflate, br and zstd.",
            shortened(encoding)
        ),
        Refusal::BodyEncodingInvalid { encoding } => format!(
            "The request body is not whole and valid {encoding}, as its content-encoding says. Send complete {encoding} \
             data with nothing behind it, or the body without content-encoding."
        ),
        Refusal::BodyShareUsed { whose, bytes_max } => {
            let whose = match whose {
                BodyShare::Key => "with this API key",
                BodyShare::Address => "from your network",
            };
            format!(
                "Request bodies {whose} take {bytes_max} bytes at this moment, which is all they may at one time. Try again in \
                 a second, and send fewer large requests at once."
            )
        }
        Refusal::BodyWorkLimited => {
            "Too many large request bodies with this API key wait to be read. Try again in a second, and \
             send fewer large requests at once."
                .to_owned()
        }
        _ => "The service has no room for another request body now. Try again shortly.".to_owned(),
    }
}

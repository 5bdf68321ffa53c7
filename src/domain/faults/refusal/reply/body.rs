//! The messages of refusals of request bodies.

use crate::domain::{
    faults::refusal::{BodyShare, Refusal},
    wire::operation,
};

/// The message: what is wrong, with what, and what to do. The last arm is that of [`Refusal::BodyBudgetExhausted`].
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
        Refusal::Untranslatable { path, reason } => format!(
            "`{}` cannot be translated to the protocol of this model's provider: {}.",
            shortened(path),
            reason.trim_end_matches('.')
        ),
        Refusal::BodyEncodingUnsupported { encoding } => format!(
            "The content encoding `{}` is not supported for request bodies. Send the body without content-encoding, or in \
             one of gzip, deflate, br and zstd.",
            shortened(encoding)
        ),
        Refusal::BodyEncodingInvalid { encoding } => format!(
            "The request body is not complete and valid {encoding}, which its content-encoding declares. Send complete \
             {encoding} data with nothing after it, or the body without content-encoding."
        ),
        Refusal::BodyShareUsed { whose, bytes_max } => {
            let whose = match whose {
                BodyShare::Key => "with this API key",
                BodyShare::Address => "from your network",
            };
            format!(
                "Request bodies {whose} have reached their limit of {bytes_max} bytes at one time. Try again in a second, and \
                 send fewer large requests at once."
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

/// The maximum number of characters of a client's text that a message repeats.
const ECHO_CHARS_MAX: usize = 128;

/// The number of consecutive letters and digits from which a text may be a key.
const KEY_RUN_CHARS_MIN: usize = 32;

/// Returns the model's name for a message. The name is left out if no model can have it or if it may be a key.
pub(super) fn model_phrase(model: &str) -> String {
    let like_a_key = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|run| run.len() >= KEY_RUN_CHARS_MIN);
    if operation::is_plausible(model) && !like_a_key {
        format!("model `{model}`")
    } else {
        "model with the name that was sent".to_owned()
    }
}

/// Shortens a client's text to [`ECHO_CHARS_MAX`] characters, without control characters.
pub(super) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ECHO_CHARS_MAX).collect()
}

//! What a message repeats of a client's own texts.

use crate::domain::wire::model_name;

/// The most characters of a client's text that a message repeats.
const ECHO_CHARS_MAX: usize = 128;

/// So many letters and digits in a row make a text look like a key.
const KEY_RUN_CHARS_MIN: usize = 32;

/// The model's name for a message, or none if the name should not be repeated: no model can have it, or it is like a
/// key.
pub(super) fn named(model: &str) -> String {
    let like_a_key = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|run| run.len() >= KEY_RUN_CHARS_MIN);
    if model_name::is_plausible(model) && !like_a_key {
        format!("model `{model}`")
    } else {
        "model with the name that was sent".to_owned()
    }
}

/// A client's text, shortened and printable.
pub(super) fn echo(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ECHO_CHARS_MAX).collect()
}

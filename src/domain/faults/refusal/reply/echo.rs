//! Client texts that a message repeats.

use crate::domain::wire::model_name;

/// Maximum number of characters of a client's text that a message repeats.
const ECHO_CHARS_MAX: usize = 128;

/// A run of this many letters and digits makes a text look like a key.
const KEY_RUN_CHARS_MIN: usize = 32;

/// The model for a message, without its name if that should not be repeated: no model can have that name, or it looks like a
/// key.
pub(super) fn model_phrase(model: &str) -> String {
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
pub(super) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ECHO_CHARS_MAX).collect()
}

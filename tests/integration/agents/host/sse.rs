//! Server-sent events.

use serde_json::{Value as Json, json};

/// An event of this type with these members behind it.
pub(super) fn named(kind: &str, members: &Json) -> String {
    let mut event = json!({ "type": kind });
    for (name, value) in members.as_object().unwrap() {
        event[name] = value.clone();
    }
    format!("event: {kind}\ndata: {event}\n\n")
}

/// An event that is only data.
pub(super) fn unnamed(data: &Json) -> String {
    format!("data: {data}\n\n")
}

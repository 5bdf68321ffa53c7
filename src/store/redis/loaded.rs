//! A script as Redis is given it.

use ::redis::Script;

/// A script with its text, which Redis is given again on every new connection.
pub(super) struct Loaded {
    pub(super) script: Script,
    pub(super) text: &'static str,
}

impl Loaded {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            script: Script::new(text),
            text,
        }
    }
}

//! Links into the console, as far as the admin API knows them.

use super::peer::Peer;

/// Makes links into the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// A link that opens a session of `opener` once, soon; `role` is what the session may do, by name, all of it if there is
    /// none.
    ///
    /// # Errors
    /// What is wrong with the role, or why there is no console.
    fn issue(&self, opener: &Peer, role: Option<&str>) -> Result<ConsoleLink, String>;
}

/// A link into the console.
#[derive(Clone, Debug)]
pub(crate) struct ConsoleLink {
    /// The address to open in a browser.
    pub(crate) url: String,
    /// For how long it is good.
    pub(crate) good_for_seconds: u64,
}

//! Provider files: what differs between providers is data, one TOML file each, checked and compiled once.

pub mod raw;

pub use raw::{ClientGoneAction, ErrorShape, OnClientGone, RawModel};

/// A provider file, unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    /// Its name in errors, such as `lua-free-rules/openai.toml`.
    pub name: String,
    /// Its content.
    pub text: String,
}

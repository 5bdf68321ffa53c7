//! How the sample provider behaves.

use std::path::PathBuf;

use super::script::Script;

/// How the sample provider behaves, for [`super::serve`]. The default takes any key, counts tokens and keeps no ledger.
#[derive(Clone, Default)]
pub struct Settings {
    /// The lowest layer of the script; the model name and the mark in the prompt go over it.
    pub script: Script,
    /// Where token counts come from.
    pub counting: Counting,
    /// What is billed when the client leaves.
    pub on_client_gone: OnClientGone,
    /// The only key that is taken; `None` takes any.
    pub required_key: Option<String>,
    /// The ledger file, appended to.
    pub ledger: Option<PathBuf>,
    /// Seed of the word list.
    pub seed: u64,
}

/// Where token counts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Counted from the texts, with o200k where the feature `exact-tokens` is on; long parts are estimated and flagged
    /// so in the ledger.
    #[default]
    Text,
    /// Fixed: 100 tokens in, one token out per delta. Answers with a fixed number of deltas are then rendered once and
    /// reused, ids included.
    Fixed,
}

/// What the sample provider bills when a client leaves before the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClientGone {
    /// It goes on generating, as real providers do: the whole answer is billed.
    #[default]
    Finish,
    /// Only what was generated until then.
    Stop,
}

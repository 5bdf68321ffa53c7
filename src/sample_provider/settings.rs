//! Settings of the sample provider.

use std::path::PathBuf;

use super::script::SampleScript;

/// Settings for [`super::serve`]. The default accepts any key, counts tokens and keeps no ledger.
#[derive(Clone, Default)]
pub struct SampleSettings {
    /// The lowest layer of the script; the model name and the mark in the prompt override it.
    pub script: SampleScript,
    /// The source of token counts.
    pub counting: TokenCounting,
    /// What to bill when the client leaves.
    pub on_client_gone: ClientGoneBilling,
    /// The only key that is accepted; `None`: any key.
    pub required_key: Option<String>,
    /// The ledger file, which is appended to.
    pub ledger: Option<PathBuf>,
    /// Seed of the word list.
    pub seed: u64,
}

/// The source of token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenCounting {
    /// Counted from the texts, with o200k if the feature `exact-tokens` is on. Long parts are estimated, which the ledger
    /// records.
    #[default]
    Text,
    /// Fixed: 100 input tokens, and one output token per delta. Answers with a fixed number of deltas are then rendered once
    /// and reused, with their ids.
    Fixed,
}

/// What the sample provider bills when a client leaves before the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientGoneBilling {
    /// The whole answer, because generation continues, as at real providers.
    #[default]
    Finish,
    /// Only what was generated until then.
    Stop,
}

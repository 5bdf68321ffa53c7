//! `weir store`: sets up, backs up, restores and prunes the store.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use crate::{cli::output::ProgressArgs, config::DEFAULT_PATH};

/// The subcommands of `weir store`.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Set up a new Redis for weir; an embedded store does not need this
    Init(InitArgs),
    /// Write the complete store to a file, also while weir runs; rows of the log are included only if the store is the log
    /// backend
    Backup(BackupArgs),
    /// Restore a backup into an empty store that no weir has open; rows of the log are restored only if the store is the log
    /// backend or was the previous one
    Restore(RestoreArgs),
    /// Remove daily sums from an embedded store earlier than weir does itself; no weir may have the store open
    Prune(PruneArgs),
}

/// The arguments of `weir store init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// Accept the keys as they are in a Redis that has lost its generation, or beside an embedded store that has lost its ledger
    #[arg(long)]
    pub adopt: bool,
}

/// The arguments of `weir store backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The file to write, which appears only when it is complete
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
}

/// The arguments of `weir store restore`.
#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The file with the backup
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
}

/// The arguments of `weir store prune`.
#[derive(Args, Clone, Debug)]
pub struct PruneArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The first day whose daily sums are kept, in UTC; without this command, they are kept for 180 days
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub before: Date,
}

/// The options of every command on the store.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// The configuration file that names the store
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

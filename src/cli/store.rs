//! `weir store`: sets up, backs up, restores and prunes a store.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use crate::{cli::output::ProgressArgs, config::DEFAULT_PATH};

/// The subcommands of `weir store`.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Set up a new Redis for weir; an embedded store does not need this
    Init(InitArgs),
    /// Write everything in the store to a file, also while weir runs; includes rows of the log only if the store is the log
    /// backend
    Backup(BackupArgs),
    /// Restore a backup into an empty store that no weir has open; rows only if the store is the log backend, or was the
    /// previous one
    Restore(RestoreArgs),
    /// Remove old daily sums from an embedded store that no weir has open, beyond its own retention
    Prune(PruneArgs),
}

/// `weir store init`
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// Accept the keys of a Redis that has lost its generation, or of an embedded store that has lost its ledger, as they are
    #[arg(long)]
    pub adopt: bool,
}

/// `weir store backup`
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The file to write, which appears only when it is complete
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
}

/// `weir store restore`
#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The backup
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
}

/// `weir store prune`
#[derive(Args, Clone, Debug)]
pub struct PruneArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The first day to keep, in UTC; daily sums are kept for 180 days
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub before: Date,
}

/// The options of every store command.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// The configuration that names the store
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

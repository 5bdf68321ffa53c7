//! `weir store`: sets a store up, copies all of it into a file, and puts that back.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use crate::{cli::progress::ProgressArgs, config::DEFAULT_PATH};

/// What to do with the store that a configuration names.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Set a new Redis up for weir; an embedded store needs none of it
    Init(InitArgs),
    /// Write everything in the store to a file, also while weir runs; rows of the log only if they are at home there
    Backup(BackupArgs),
    /// Put a backup into an empty store that no weir has open; rows only where the store is the log's home, or was before
    Restore(RestoreArgs),
    /// Remove old daily sums of an embedded store that no weir has open, more than retention removes by itself
    Prune(PruneArgs),
}

/// `weir store init`
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// Take over the keys of a Redis that has lost its generation, or an embedded ledger that was lost, as they are
    #[arg(long)]
    pub adopt: bool,
}

/// `weir store backup`
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// Where to write, whole or not at all
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that is there
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
    /// The first day that is kept, in UTC; daily sums are kept for 180 days
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub before: Date,
}

/// Which store, and how to print.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// The configuration that names the store
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

//! `weir store`: sets up, backs up, restores and prunes the store.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use crate::{cli::output::ProgressArgs, config::DEFAULT_PATH};

/// The subcommands of `weir store`.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Set up a new Redis for weir. An embedded store does not need this command
    Init(InitArgs),
    /// Write the complete store to a file, even while weir runs. The backup includes rows of the log only if the store is the log
    /// backend
    Backup(BackupArgs),
    /// Restore a backup into an empty store that no running weir uses. Rows of the log are restored only if the store is the
    /// current or previous log backend
    Restore(RestoreArgs),
    /// Remove old daily sums from an embedded store before weir removes them itself. No running weir may use the store
    Prune(PruneArgs),
}

/// The arguments of `weir store init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// Accept the data that remains after a loss. Use this option if Redis has data of weir but lacks the random string that this
    /// command writes (the generation). Also use it if an embedded ledger was removed or replaced
    #[arg(long)]
    pub adopt: bool,
}

/// The arguments of `weir store backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub store: StoreArgs,
    /// The file to write. It appears only when it is complete
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
    /// The first day, in UTC, whose daily sums are kept. weir itself keeps daily sums for 180 days
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

//! `weir log init`: the arguments.

use std::path::PathBuf;

use clap::Args;

use crate::{config::DEFAULT_PATH, domain::catalogue::SecretRef};

/// `weir log init`
#[derive(Args, Clone, Debug)]
pub struct LogInitArgs {
    /// The configuration that names the log backend
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub conf: PathBuf,
    /// The connection string of the role that creates and owns everything, as env:NAME, file:PATH or credential:NAME
    /// [default: the url in the configuration]
    #[arg(long, value_name = "SECRET")]
    pub owner: Option<SecretRef>,
    /// A role that gets only the rights to write the log; may be repeated
    #[arg(long, value_name = "ROLE")]
    pub grant_writer: Vec<String>,
    /// A role that gets the right to read the log; may be repeated
    #[arg(long, value_name = "ROLE")]
    pub grant_reader: Vec<String>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

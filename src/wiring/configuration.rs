//! Reads the configuration that a command names.

use std::path::{Path, PathBuf};

use crate::{config::Config, wiring::start_error::StartError};

pub(super) fn load(conf: &Path) -> Result<Config, StartError> {
    Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))
}

/// The admin socket that a configuration names.
pub(super) fn socket(conf: Option<&Path>) -> Result<PathBuf, String> {
    let conf = conf.unwrap_or(Path::new("/etc/weir/weir.toml"));
    Config::load(conf).map(|config| config.admin.socket).map_err(|error| {
        format!("{error}\nname the admin socket with --admin unix:PATH, or the configuration with --conf")
    })
}

//! Reads `weir.toml`, to use it or to report everything that is wrong with it.

use std::path::Path;

use super::{Config, ConfigError};
use crate::domain::{settings::parse_settings, strict_toml::FileError};

/// Maximum size of a configuration file; a larger one is not read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads and checks a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file is unreadable, not TOML, has unknown keys, or has values out of their limits; all of these are reported.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&file_name(path), &read_file(path)?, file_folder(path))
    }

    /// Reads a configuration file and returns everything that is wrong with it; wrong values have their defaults. `None` if it is
    /// not TOML.
    ///
    /// # Errors
    /// The file is unreadable.
    pub(crate) fn examine(path: &Path) -> Result<(Option<Self>, Vec<FileError>), ConfigError> {
        Ok(parse_file(&file_name(path), &read_file(path)?, file_folder(path)))
    }

    /// Checks a configuration given as text. `file` names it in errors; relative paths are relative to `folder`.
    /// An empty text gives the defaults.
    pub(super) fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, ConfigError> {
        match parse_file(file, text, folder) {
            (Some(config), errors) if errors.is_empty() => Ok(config),
            (_, errors) => Err(ConfigError::Invalid(errors)),
        }
    }
}

/// The file's name in errors: its absolute path, as for all files that it names.
fn file_name(path: &Path) -> String {
    let whole = std::path::absolute(path);
    whole.as_deref().unwrap_or(path).display().to_string()
}

fn file_folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable {
        path: file_name(path),
        reason,
    };
    let bytes = std::fs::metadata(path)
        .map_err(|error| unreadable(error.to_string()))?
        .len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {bytes} bytes, more than {FILE_BYTES_MAX}")));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

fn parse_file(file: &str, text: &str, folder: &Path) -> (Option<Config>, Vec<FileError>) {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut understood = parse_settings::<Config>(file, text, &folder);
    if let Some(config) = &mut understood.value {
        config.catalogue.places = understood.places;
    }
    (understood.value, understood.errors)
}

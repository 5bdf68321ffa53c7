//! The file that has a machine's tokens, for its owner alone. One process at a time uses it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use thiserror::Error;

use super::gateway::Tokens;
use crate::{cli::partial_file::partial_path, domain::keys::secret::Secret};

const IN_CONFIG: &str = "weir/sign-in.json";

/// Why the file is of no use.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// There is no place for it.
    #[error("neither HOME nor XDG_CONFIG_HOME is set: name a file with --file")]
    Homeless,
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    System {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is another one.
    #[error("{}: this is no file of weir login: delete it, or name another one with --file", .0.display())]
    Unreadable(PathBuf),
    /// Nobody is signed in.
    #[error("nobody is signed in ({} is not there): run weir login URL", .0.display())]
    Nobody(PathBuf),
}

/// A machine that is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedIn {
    /// Where, as `https://HOST`.
    pub(super) gateway: String,
    /// What the gateway is verified by, if not by the machine's authorities.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) access_token: Secret,
    /// When the access token ends, in seconds since the Unix epoch.
    pub(super) expires_at: i64,
    pub(super) refresh_token: Secret,
}

#[derive(Serialize, Deserialize)]
struct Written {
    gateway: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    access_token: String,
    expires_at: i64,
    refresh_token: String,
}

impl SignedIn {
    /// With tokens that were given now.
    pub(super) fn new(gateway: String, ca_file: Option<PathBuf>, tokens: Tokens, now: i64) -> Self {
        Self {
            gateway,
            ca_file,
            access_token: tokens.access,
            expires_at: now.saturating_add(tokens.lasts_seconds),
            refresh_token: tokens.refresh,
        }
    }

    /// The tokens are replaced by those that were given now.
    pub(super) fn take(&mut self, tokens: Tokens, now: i64) {
        *self = Self::new(self.gateway.clone(), self.ca_file.take(), tokens, now);
    }
}

/// Where the file is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    is_named: bool,
}

impl Place {
    /// The named file, or the one of this user.
    pub(super) fn of(named: Option<PathBuf>) -> Result<Self, FileError> {
        if let Some(path) = named {
            return Ok(Self { path, is_named: true });
        }
        let folder = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        let path = config.ok_or(FileError::Homeless)?.join(IN_CONFIG);
        Ok(Self { path, is_named: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A command of weir on this file, for a shell.
    pub(super) fn command(&self, word: &str) -> String {
        if self.is_named {
            format!(
                "weir {word} --file '{}'",
                self.path.display().to_string().replace('\'', "'\\''")
            )
        } else {
            format!("weir {word}")
        }
    }

    /// The file, for this process alone until it is done.
    pub(super) fn locked(&self) -> Result<Locked<'_>, FileError> {
        let lock = || {
            if let Some(folder) = self.path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let mut name = self.path.as_os_str().to_owned();
            name.push(".lock");
            let lock = private().create(true).truncate(false).open(PathBuf::from(name))?;
            lock.lock()?;
            Ok(lock)
        };
        let lock = lock().map_err(|source| self.failed(source))?;
        Ok(Locked {
            place: self,
            _lock: lock,
        })
    }

    fn failed(&self, source: io::Error) -> FileError {
        let path = self.path.clone();
        match source.kind() {
            ErrorKind::NotFound => FileError::Nobody(path),
            _ => FileError::System { path, source },
        }
    }
}

/// The file, as long as nobody else uses it.
pub(super) struct Locked<'p> {
    place: &'p Place,
    _lock: File,
}

impl Locked<'_> {
    pub(super) fn read(&self) -> Result<SignedIn, FileError> {
        let place = self.place;
        let text = fs::read(&place.path).map_err(|source| place.failed(source))?;
        let written: Written = serde_json::from_slice(&text).map_err(|_| FileError::Unreadable(place.path.clone()))?;
        Ok(SignedIn {
            gateway: written.gateway,
            ca_file: written.ca_file,
            access_token: Secret::new(written.access_token),
            expires_at: written.expires_at,
            refresh_token: Secret::new(written.refresh_token),
        })
    }

    /// Replaces it in one step.
    pub(super) fn write(&self, signed_in: &SignedIn) -> Result<(), FileError> {
        let path = &self.place.path;
        let written = Written {
            gateway: signed_in.gateway.clone(),
            ca_file: signed_in.ca_file.clone(),
            access_token: signed_in.access_token.expose().to_owned(),
            expires_at: signed_in.expires_at,
            refresh_token: signed_in.refresh_token.expose().to_owned(),
        };
        let replace = || {
            let partial = partial_path(path);
            // What an interrupted one left may be open to others.
            match fs::remove_file(&partial) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private().create_new(true).open(&partial)?;
            file.write_all(&serde_json::to_vec(&written)?)?;
            file.sync_all()?;
            fs::rename(&partial, path)
        };
        replace().map_err(|source| FileError::System {
            path: path.clone(),
            source,
        })
    }

    /// Removes it.
    pub(super) fn remove(&self) -> Result<(), FileError> {
        fs::remove_file(&self.place.path).map_err(|source| self.place.failed(source))
    }
}

/// A file for its owner alone.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn signed_in(access: &str) -> SignedIn {
        SignedIn {
            gateway: "https://weir.example".to_owned(),
            ca_file: None,
            access_token: Secret::new(access),
            expires_at: 7,
            refresh_token: Secret::new("refresh"),
        }
    }

    #[test]
    fn tokens_are_read_again_and_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/sign-in.json");
        let place = Place::of(Some(path.clone())).unwrap();
        let locked = place.locked().unwrap();
        assert!(matches!(locked.read(), Err(FileError::Nobody(_))));
        // An open file of that name is not written into.
        fs::write(partial_path(&path), "").unwrap();
        for access in ["first", "second"] {
            locked.write(&signed_in(access)).unwrap();
            assert_eq!(locked.read().unwrap(), signed_in(access));
        }
        for made in [&path, &path.with_extension("json.lock")] {
            assert_eq!(
                fs::metadata(made).unwrap().permissions().mode() & 0o777,
                0o600,
                "{made:?}"
            );
        }
        let made = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
        fs::write(&path, "{}").unwrap();
        assert!(matches!(locked.read(), Err(FileError::Unreadable(_))));
        locked.remove().unwrap();
        assert!(matches!(locked.read(), Err(FileError::Nobody(_))));
    }

    #[test]
    fn a_file_is_used_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign-in.json");
        let place = Place::of(Some(path.clone())).unwrap();
        let locked = place.locked().unwrap();
        let again = private().open(path.with_extension("json.lock")).unwrap();
        assert!(again.try_lock().is_err());
        drop(locked);
        assert!(again.try_lock().is_ok());
    }

    #[test]
    fn a_command_can_be_pasted() {
        let place = Place::of(Some(PathBuf::from("/a b/it's"))).unwrap();
        assert_eq!(place.command("token"), r"weir token --file '/a b/it'\''s'");
    }

    #[test]
    fn nothing_of_a_token_is_printed() {
        assert!(!format!("{:?}", signed_in("canary")).contains("canary"));
    }
}

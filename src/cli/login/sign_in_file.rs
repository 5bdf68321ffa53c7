//! The file that stores the tokens of a machine. Only its owner can read it, and one process at a time uses it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use thiserror::Error;

use super::gateway::MachineTokens;
use crate::{cli::output::partial_path, domain::keys::secret::Secret};

const IN_CONFIG: &str = "weir/sign-in.json";

/// Why the file with the tokens cannot be used.
#[derive(Debug, Error)]
pub(crate) enum SignInFileError {
    /// The default path of the file cannot be determined.
    #[error(
        "cannot find the file with the tokens, because neither HOME nor XDG_CONFIG_HOME is set: name a file with --file"
    )]
    FolderUnknown,
    /// The file cannot be read or written.
    #[error("cannot read or write {}: {source}", path.display())]
    System {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has content that weir did not write.
    #[error("cannot use {}: its content was not written by weir login; delete the file, or name another one with --file", .0.display())]
    Unreadable(PathBuf),
    /// The file does not exist, so the machine is not signed in.
    #[error("not signed in ({} does not exist): run weir login URL", .0.display())]
    NotSignedIn(PathBuf),
}

/// The sign-in of a machine at a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedSignIn {
    /// The URL of the gateway, as `https://HOST`.
    pub(super) gateway: String,
    /// The file with the CA certificates that are trusted for the gateway. `None` for those of the machine.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) access_token: Secret,
    /// When the access token expires, in seconds since the Unix epoch.
    pub(super) expires_at: i64,
    pub(super) refresh_token: Secret,
}

#[derive(Serialize, Deserialize)]
struct SignInRecord {
    gateway: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    access_token: String,
    expires_at: i64,
    refresh_token: String,
}

impl SavedSignIn {
    /// Creates a sign-in with tokens that were issued at the time `now`, in seconds since the Unix epoch.
    pub(super) fn new(gateway: String, ca_file: Option<PathBuf>, tokens: MachineTokens, now: i64) -> Self {
        Self {
            gateway,
            ca_file,
            access_token: tokens.access,
            expires_at: now.saturating_add(tokens.lasts_seconds),
            refresh_token: tokens.refresh,
        }
    }

    /// Replaces the tokens by new ones that were issued at the time `now`, in seconds since the Unix epoch.
    pub(super) fn replace_tokens(&mut self, tokens: MachineTokens, now: i64) {
        *self = Self::new(self.gateway.clone(), self.ca_file.take(), tokens, now);
    }
}

/// The path of the file, and whether the user has named it.
#[derive(Clone, Debug)]
pub(super) struct SignInFileLocation {
    path: PathBuf,
    is_named: bool,
}

impl SignInFileLocation {
    /// Returns the location of the file `named`, or of the user's default file.
    pub(super) fn find(named: Option<PathBuf>) -> Result<Self, SignInFileError> {
        if let Some(path) = named {
            return Ok(Self { path, is_named: true });
        }
        let folder = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        let path = config.ok_or(SignInFileError::FolderUnknown)?.join(IN_CONFIG);
        Ok(Self { path, is_named: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a command line of weir that uses this file, for a shell.
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

    /// Locks the file for this process until the returned value is dropped.
    pub(super) fn lock(&self) -> Result<LockedSignInFile<'_>, SignInFileError> {
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
        Ok(LockedSignInFile {
            place: self,
            _lock: lock,
        })
    }

    fn failed(&self, source: io::Error) -> SignInFileError {
        let path = self.path.clone();
        match source.kind() {
            ErrorKind::NotFound => SignInFileError::NotSignedIn(path),
            _ => SignInFileError::System { path, source },
        }
    }
}

/// The file with the tokens, while this process has it locked.
pub(super) struct LockedSignInFile<'p> {
    place: &'p SignInFileLocation,
    _lock: File,
}

impl LockedSignInFile<'_> {
    pub(super) fn read(&self) -> Result<SavedSignIn, SignInFileError> {
        let place = self.place;
        let text = fs::read(&place.path).map_err(|source| place.failed(source))?;
        let written: SignInRecord =
            serde_json::from_slice(&text).map_err(|_| SignInFileError::Unreadable(place.path.clone()))?;
        Ok(SavedSignIn {
            gateway: written.gateway,
            ca_file: written.ca_file,
            access_token: Secret::new(written.access_token),
            expires_at: written.expires_at,
            refresh_token: Secret::new(written.refresh_token),
        })
    }

    /// Replaces the content of the file atomically.
    pub(super) fn write(&self, signed_in: &SavedSignIn) -> Result<(), SignInFileError> {
        let path = &self.place.path;
        let written = SignInRecord {
            gateway: signed_in.gateway.clone(),
            ca_file: signed_in.ca_file.clone(),
            access_token: signed_in.access_token.expose().to_owned(),
            expires_at: signed_in.expires_at,
            refresh_token: signed_in.refresh_token.expose().to_owned(),
        };
        let replace = || {
            let partial = partial_path(path);
            // The partial file of an interrupted write is removed first, because its mode may let others read it.
            match fs::remove_file(&partial) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private().create_new(true).open(&partial)?;
            file.write_all(&serde_json::to_vec(&written)?)?;
            file.sync_all()?;
            fs::rename(&partial, path)
        };
        replace().map_err(|source| SignInFileError::System {
            path: path.clone(),
            source,
        })
    }

    /// Removes the file.
    pub(super) fn remove(&self) -> Result<(), SignInFileError> {
        fs::remove_file(&self.place.path).map_err(|source| self.place.failed(source))
    }
}

/// Returns options that create a file which only its owner can read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn signed_in(access: &str) -> SavedSignIn {
        SavedSignIn {
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
        let place = SignInFileLocation::find(Some(path.clone())).unwrap();
        let locked = place.lock().unwrap();
        assert!(matches!(locked.read(), Err(SignInFileError::NotSignedIn(_))));
        // A file with this name that others can read is not written into.
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
        assert!(matches!(locked.read(), Err(SignInFileError::Unreadable(_))));
        locked.remove().unwrap();
        assert!(matches!(locked.read(), Err(SignInFileError::NotSignedIn(_))));
    }

    #[test]
    fn a_file_is_used_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign-in.json");
        let place = SignInFileLocation::find(Some(path.clone())).unwrap();
        let locked = place.lock().unwrap();
        let again = private().open(path.with_extension("json.lock")).unwrap();
        assert!(again.try_lock().is_err());
        drop(locked);
        assert!(again.try_lock().is_ok());
    }

    #[test]
    fn a_command_can_be_pasted() {
        let place = SignInFileLocation::find(Some(PathBuf::from("/a b/it's"))).unwrap();
        assert_eq!(place.command("token"), r"weir token --file '/a b/it'\''s'");
    }

    #[test]
    fn nothing_of_a_token_is_printed() {
        assert!(!format!("{:?}", signed_in("canary")).contains("canary"));
    }
}

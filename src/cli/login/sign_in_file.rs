//! The file with a machine's tokens, which only its owner can read. One process at a time uses it.

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

/// Why the file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum SignInFileError {
    /// The file's folder is unknown.
    #[error("neither HOME nor XDG_CONFIG_HOME is set: name a file with --file")]
    FolderUnknown,
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    System {
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file has other contents.
    #[error("{}: not written by weir login: delete it, or name another file with --file", .0.display())]
    Unreadable(PathBuf),
    /// The machine is not signed in.
    #[error("not signed in ({} does not exist): run weir login URL", .0.display())]
    NotSignedIn(PathBuf),
}

/// The sign-in of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedSignIn {
    /// The gateway, as `https://HOST`.
    pub(super) gateway: String,
    /// The authorities that the gateway is verified by; `None` for the machine's.
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
    /// A sign-in with tokens that were issued now.
    pub(super) fn new(gateway: String, ca_file: Option<PathBuf>, tokens: MachineTokens, now: i64) -> Self {
        Self {
            gateway,
            ca_file,
            access_token: tokens.access,
            expires_at: now.saturating_add(tokens.lasts_seconds),
            refresh_token: tokens.refresh,
        }
    }

    /// Replaces the tokens by those that were issued now.
    pub(super) fn replace_tokens(&mut self, tokens: MachineTokens, now: i64) {
        *self = Self::new(self.gateway.clone(), self.ca_file.take(), tokens, now);
    }
}

/// The location of the file.
#[derive(Clone, Debug)]
pub(super) struct SignInFileLocation {
    path: PathBuf,
    is_named: bool,
}

impl SignInFileLocation {
    /// The named file, or this user's default one.
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

    /// A weir command on this file, for a shell.
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

    /// Locks the file for this process until the result is dropped.
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

/// The file, locked for this process.
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

    /// Replaces the file atomically.
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
            // The remains of an interrupted write may be open to others.
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

/// Options for a file that only its owner can read.
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

//! Claims the path of a unix socket: private from its first moment, never stolen from a process that still serves it.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Owner and group may connect.
const SOCKET_MODE: u32 = 0o660;
/// A folder that is made for the socket: the group may look in, others may not.
const FOLDER_MODE: u32 = 0o750;

/// Why a socket cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnixSocketError {
    /// Another process serves the socket.
    #[error("unix socket {0} is served by another process; stop it or configure another path")]
    Live(PathBuf),
    /// Something that is no socket is in the way, and may be precious.
    #[error("{0} exists and is no socket; move it away or configure another path")]
    NotASocket(PathBuf),
    /// An operation on the socket failed.
    #[error("unix socket {path}: {step}: {source}; check that weir may write to the folder")]
    Io {
        /// The configured path.
        path: PathBuf,
        /// The operation that failed.
        step: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A listening socket whose file is removed on drop, unless somebody else took the path over.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// Whom a claim may take the path from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A process that is dead.
    Left,
    /// Also one that serves: it has made way.
    Handed,
}

/// Binds `path` 0660, making its folder 0750 if it is missing. What a dead process left there is replaced.
/// Must be called inside a Tokio runtime.
pub(crate) fn claim(path: &Path, claim: Claim) -> Result<(UnixListener, SocketFile), UnixSocketError> {
    let io = |step| {
        move |source| UnixSocketError::Io {
            path: path.to_owned(),
            step,
            source,
        }
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        made.map_err(io("cannot make the folder"))?;
    }
    check_the_place(path, claim)?;
    // Bound and restricted under another name first: at `path` it is never seen with other permissions, and a stale
    // file is replaced in one step.
    let fresh = fresh_name(path);
    remove_if_there(&fresh).map_err(io("cannot remove a left-over"))?;
    let listener = UnixListener::bind(&fresh).map_err(io("cannot bind"))?;
    fs::set_permissions(&fresh, Permissions::from_mode(SOCKET_MODE)).map_err(io("cannot set permissions"))?;
    let identity = identity(&fs::symlink_metadata(&fresh).map_err(io("cannot look at it"))?);
    fs::rename(&fresh, path).map_err(io("cannot move it into place"))?;
    let path = path.to_owned();
    Ok((listener, SocketFile { path, identity }))
}

fn check_the_place(path: &Path, claim: Claim) -> Result<(), UnixSocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(UnixSocketError::Io {
            path: path.to_owned(),
            step: "cannot look at it",
            source,
        }),
        Ok(there) if !there.file_type().is_socket() => Err(UnixSocketError::NotASocket(path.to_owned())),
        Ok(_) if claim == Claim::Handed => Ok(()),
        // Only a refused connection proves that nobody is there; a full backlog or missing rights do not.
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
            Ok(_) | Err(_) => Err(UnixSocketError::Live(path.to_owned())),
        },
    }
}

fn fresh_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl SocketFile {
    /// Whether the path leads to it still.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "unix socket not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_socket_and_a_folder_made_for_it_are_private() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("run/admin.sock");
        let (_listener, file) = claim(&path, Claim::Left).expect("claimed");
        assert_eq!(mode(&path), 0o660);
        assert_eq!(mode(&root.path().join("run")), 0o750);
        drop(file);
        assert!(!path.exists());
        assert_eq!(
            fs::read_dir(root.path().join("run")).expect("there").count(),
            0,
            "nothing is left behind"
        );
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("admin.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "a killed process leaves its file");
        let (_listener, _file) = claim(&path, Claim::Left).expect("replaced");
        let second = claim(&path, Claim::Left);
        assert!(matches!(second, Err(UnixSocketError::Live(_))), "{second:?}");
        UnixStream::connect(&path).expect("the first still serves");
        let (_next, next_file) = claim(&path, Claim::Handed).expect("the first has made way");
        drop(_file);
        assert!(path.exists(), "the first leaves the path to the next");
        drop(next_file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_never_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("admin.sock");
        fs::write(&path, "precious").expect("written");
        assert!(matches!(claim(&path, Claim::Left), Err(UnixSocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
    }
}

//! Claims the path of a Unix socket. The socket has its final permissions from the start, and the path is never taken from a
//! process that still serves it without having handed it over.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The mode of the socket: its owner and its group can connect.
const SOCKET_MODE: u32 = 0o660;
/// The mode of a folder that is created for the socket: its group can list it, others cannot.
const FOLDER_MODE: u32 = 0o750;

/// Why the path of a socket cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnixSocketError {
    /// Another process serves the socket.
    #[error("unix socket {0} is served by another process; stop that process or configure another path")]
    Live(PathBuf),
    /// The path leads to a file that is not a socket. It is not replaced, because it may be valuable.
    #[error("unix socket {0}: the file at this path is not a socket; move the file away or configure another path")]
    NotASocket(PathBuf),
    /// An operation on the file system failed.
    #[error("unix socket {path}: {step}: {source}; check that weir is allowed to write to the folder")]
    Io {
        /// The configured path of the socket.
        path: PathBuf,
        /// The operation that failed, as a sentence without its end.
        step: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The file of a listening Unix socket. It is removed when this is dropped, unless another process has taken the path over.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// From which process the path of a socket can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketClaim {
    /// Only from a process that has ended.
    FromDeadProcess,
    /// Also from a process that serves the socket, because it has handed the path over.
    FromServingProcess,
}

/// Binds a Unix socket to `path` with the mode 0660. Creates its folder with the mode 0750 if it does not exist. Replaces a
/// socket that an ended process has left. Must be called inside a Tokio runtime.
pub(crate) fn claim(path: &Path, claim: SocketClaim) -> Result<(UnixListener, SocketFile), UnixSocketError> {
    let io = |step| {
        move |source| UnixSocketError::Io {
            path: path.to_owned(),
            step,
            source,
        }
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        made.map_err(io("cannot create the folder"))?;
    }
    check_path(path, claim)?;
    // The socket is first bound and restricted under a temporary name. So it never has other permissions at `path`, and a socket
    // that an ended process has left is replaced atomically.
    let fresh = temporary_path(path);
    remove_if_there(&fresh).map_err(io("cannot remove a leftover"))?;
    let listener = UnixListener::bind(&fresh).map_err(io("cannot bind"))?;
    fs::set_permissions(&fresh, Permissions::from_mode(SOCKET_MODE)).map_err(io("cannot set permissions"))?;
    let identity = identity(&fs::symlink_metadata(&fresh).map_err(io("cannot read its metadata"))?);
    fs::rename(&fresh, path).map_err(io("cannot move it into place"))?;
    let path = path.to_owned();
    Ok((listener, SocketFile { path, identity }))
}

fn check_path(path: &Path, claim: SocketClaim) -> Result<(), UnixSocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(UnixSocketError::Io {
            path: path.to_owned(),
            step: "cannot read its metadata",
            source,
        }),
        Ok(there) if !there.file_type().is_socket() => Err(UnixSocketError::NotASocket(path.to_owned())),
        Ok(_) if claim == SocketClaim::FromServingProcess => Ok(()),
        // Only a refused connection proves that no process listens. A full backlog or missing rights do not.
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
            Ok(_) | Err(_) => Err(UnixSocketError::Live(path.to_owned())),
        },
    }
}

fn temporary_path(path: &Path) -> PathBuf {
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
    /// Returns whether the path still leads to this socket.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the unix socket");
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
        let (_listener, file) = claim(&path, SocketClaim::FromDeadProcess).expect("claimed");
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
        let (_listener, _file) = claim(&path, SocketClaim::FromDeadProcess).expect("replaced");
        let second = claim(&path, SocketClaim::FromDeadProcess);
        assert!(matches!(second, Err(UnixSocketError::Live(_))), "{second:?}");
        UnixStream::connect(&path).expect("the first still serves");
        let (_next, next_file) = claim(&path, SocketClaim::FromServingProcess).expect("the first has made way");
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
        assert!(matches!(
            claim(&path, SocketClaim::FromDeadProcess),
            Err(UnixSocketError::NotASocket(_))
        ));
        assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
    }
}

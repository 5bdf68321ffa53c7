//! Serves an HTTP/1.1 connection to a listener other than the gateway's, with timeouts for the client. A new connection may
//! replace a connection without a request.

use std::{
    convert::Infallible,
    fs::{self, DirBuilder, Metadata, Permissions},
    future::Future,
    io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::Request;
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixListener,
    time::Sleep,
};
use tower_service::Service;

use crate::edges::connection_slots::ConnectionSlot;

/// The maximum number of header lines of a request.
const HEADERS_MAX: usize = 64;
/// The maximum size of a request's head, and of the read buffer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The timeouts for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientWaits {
    /// The timeout for a request's head. It also limits how long a connection can be idle.
    pub head: Duration,
    /// The timeout for the client to receive an answer.
    pub answer: Duration,
}

/// Serves a connection until the connection ends or a new connection replaces it. After `closing` has completed, the connection
/// accepts no further request. Errors of the connection are ignored, because the client notices them.
pub(super) async fn serve<S>(
    stream: S,
    slot: ConnectionSlot,
    router: Router,
    waits: ClientWaits,
    closing: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let slot = Arc::new(slot);
    let answering = Arc::clone(&slot);
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut router, slot) = (router.clone(), Arc::clone(&answering));
        async move {
            let request = request.map(|body| report_end(body, &slot, ConnectionSlot::on_request));
            // `poll_ready` need not be called, because an axum router is always ready.
            let response = Service::call(&mut router, request).await?;
            Ok::<_, Infallible>(response.map(|body| report_end(body, &slot, ConnectionSlot::on_answered)))
        }
    });
    let stream = WriteLimit::new(stream, waits.answer, Arc::clone(&slot));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(waits.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let serving = async {
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = closing => connection.as_mut().graceful_shutdown(),
        }
        let _ended = connection.await;
    };
    tokio::select! {
        () = serving => {}
        () = slot.given_way() => {}
    }
}

/// A body that notifies the slot of its connection when the body ends or is dropped.
struct ReportingBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
    end: fn(&ConnectionSlot),
}

fn report_end<B>(body: B, slot: &Arc<ConnectionSlot>, end: fn(&ConnectionSlot)) -> Body
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let slot = Arc::clone(slot);
    Body::new(ReportingBody { body, slot, end })
}

impl<B: HttpBody + Unpin> HttpBody for ReportingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for ReportingBody<B> {
    fn drop(&mut self) {
        (self.end)(&self.slot);
    }
}

/// A stream with a timeout for writing. The timeout starts at the first write that has to wait, and ends when a flush completes.
/// A peer that reads a few bytes now and then does not restart the timeout.
#[derive(Debug)]
struct WriteLimit<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// The connection's slot. It is notified when a write has to wait for the peer, and when everything has been written.
    slot: Arc<ConnectionSlot>,
}

impl<S> WriteLimit<S> {
    fn new(stream: S, limit: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            stream,
            limit,
            waiting: None,
            slot,
        }
    }

    /// Polls the timeout of a write that has to wait. Returns an error once the timeout has passed.
    fn poll_timeout<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.waiting.is_none() {
            self.slot.set_untaken(true);
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.poll_timeout(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.poll_timeout(cx),
            flushed @ Poll::Ready(_) => {
                if self.waiting.take().is_some() {
                    self.slot.set_untaken(false);
                }
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.poll_timeout(cx),
            ended @ Poll::Ready(_) => ended,
        }
    }
}

/// The mode of the socket: its owner and its group can connect.
const SOCKET_MODE: u32 = 0o660;
/// The mode of a folder that is created for the socket: the folder's group can list and enter it, others cannot.
const FOLDER_MODE: u32 = 0o750;

/// The reason why the path of a socket cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnixSocketError {
    /// Another process serves the socket.
    #[error("unix socket {0} is served by another process; stop that process or configure another path")]
    Live(PathBuf),
    /// The path leads to a file that is not a socket. The file is not replaced, because it may be valuable.
    #[error("unix socket {0}: the file at this path is not a socket; move the file away or configure another path")]
    NotASocket(PathBuf),
    /// An operation on the file system failed.
    #[error("unix socket {path}: {step} ({source}); check that weir is allowed to write to the folder")]
    Io {
        /// The configured path of the socket.
        path: PathBuf,
        /// The operation that failed, as the beginning of a sentence.
        step: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The file of a listening Unix socket. Dropping this value removes the file, unless another process has taken over the path.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// The processes from which the path of a socket can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketClaim {
    /// Only from a process that has ended.
    FromDeadProcess,
    /// From any process, even from one that serves the socket, because that process has handed over the path.
    FromServingProcess,
}

/// Binds a Unix socket to `path` with the mode 0660. Creates the socket's folder with the mode 0750 if the folder does not exist.
/// Replaces the socket of an ended process. Must be called inside a Tokio runtime.
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
    // The socket is first bound under a temporary name and gets its mode there. Therefore it never has other permissions at
    // `path`, and the socket of an ended process is replaced atomically.
    let fresh = temporary_path(path);
    remove_if_there(&fresh).map_err(io("cannot remove a leftover file"))?;
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
        // Only a refused connection proves that no process listens. Other errors, such as a full backlog or missing rights, do
        // not prove it.
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

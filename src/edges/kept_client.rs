//! Requests of weir's own to a web server that is asked often, over connections that are kept for the next ones. Redirects are
//! not followed.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::time::timeout;
use tower_service::Service;

use crate::edges::{
    connector::{Connector, Transport},
    roots::{RootsError, roots},
};

/// Connections that nothing runs on, and for how long they are kept: less than servers keep them.
const IDLE_MAX: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(4);

/// What a request carries; made piece by piece, where it is large.
pub(crate) type Upload = UnsyncBoxBody<Bytes, io::Error>;

/// Why there is no answer. The texts have nothing of the address but what its name server or certificate made of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptError {
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection broke off, or it spoke no HTTP. The request may have arrived.
    #[error("no answer: {0}")]
    Broken(String),
    /// The answer has too many bytes.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// Sends requests. Cheap to clone. To be used inside a runtime.
#[derive(Clone)]
pub(crate) struct KeptClient(Client<Connect, Upload>);

impl KeptClient {
    /// One that trusts the authorities in a PEM file's content, or else the platform's, and waits for a connection so long.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub(crate) fn new(ca: Option<&[u8]>, connect: Duration) -> Result<Self, RootsError> {
        let connector = Connector::new(roots(ca)?)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(Connect { connector, connect });
        Ok(Self(client))
    }

    /// Sends a request to the server that its address names, and reads the whole answer, which may have so many bytes. Takes as
    /// long as it takes: the caller ends it.
    pub(crate) async fn send(&self, request: Request<Upload>, bytes_max: usize) -> Result<Response<Bytes>, KeptError> {
        let answer = self.0.request(request).await.map_err(|error| {
            let why = innermost(&error);
            if error.is_connect() {
                KeptError::Connect(why)
            } else {
                KeptError::Broken(why)
            }
        })?;
        whole(answer, bytes_max).await
    }
}

async fn whole(answer: Response<Incoming>, bytes_max: usize) -> Result<Response<Bytes>, KeptError> {
    let (head, mut body) = answer.into_parts();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| KeptError::Broken(innermost(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len().saturating_add(data.len()) > bytes_max {
            return Err(KeptError::TooLong(bytes_max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(Response::from_parts(head, whole.freeze()))
}

/// What is at the bottom of an error: those above it say no more than where.
fn innermost(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Makes connections for the client.
#[derive(Clone)]
struct Connect {
    connector: Connector,
    connect: Duration,
}

impl Service<Uri> for Connect {
    type Response = Kept;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Kept>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { connector, connect } = self.clone();
        Box::pin(async move {
            let connected = timeout(connect, connector.connect(&uri)).await;
            let late = |_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("none within {} ms", connect.as_millis()),
                )
            };
            let stream = connected.map_err(late)?.map_err(io::Error::other)?;
            Ok(Kept(TokioIo::new(stream)))
        })
    }
}

/// A connection that the client may keep.
struct Kept(TokioIo<Box<dyn Transport>>);

impl Connection for Kept {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Kept {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl Write for Kept {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;

//! Requests of weir's own to web servers: one at a time on a connection of its own, within limits, redirects not followed.
//! What clients ask providers goes another way, through Pingora.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use tokio::time::timeout;

use crate::edges::{
    connector::{ConnectError, Connector},
    roots::{RootsError, roots},
};

/// How long a request may take, and how much its answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebLimits {
    /// Longest wait for a connection, TLS included.
    pub connect: Duration,
    /// Longest time for all of it.
    pub total: Duration,
    /// The most bytes of an answer's body.
    pub answer_bytes_max: usize,
}

/// Why there is no answer. The texts have nothing of the address but what its name server or certificate made of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// The address is none of a web server.
    #[error("the address is not http://HOST or https://HOST")]
    Address,
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// The connection broke off, or it spoke no HTTP. The request may have arrived.
    #[error("no answer: {0}")]
    Broken(hyper::Error),
    /// It took too long. The request may have arrived.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The answer has too many bytes.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

impl From<ConnectError> for WebError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address => Self::Address,
            ConnectError::Io(error) => Self::Connect(error),
        }
    }
}

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WebClient {
    connector: Connector,
    limits: WebLimits,
}

impl WebClient {
    /// One that trusts the authorities in a PEM file's content, or else the platform's.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub(crate) fn new(ca: Option<&[u8]>, limits: WebLimits) -> Result<Self, RootsError> {
        Self::trusting(roots(ca)?, limits)
    }

    /// One that trusts these authorities.
    ///
    /// # Errors
    /// TLS cannot be spoken.
    pub(crate) fn trusting(roots: RootCertStore, limits: WebLimits) -> Result<Self, RootsError> {
        Ok(Self {
            connector: Connector::new(roots)?,
            limits,
        })
    }

    /// Sends a request to the server that its address names, and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, WebError> {
        let total = self.limits.total;
        timeout(total, self.exchange(request))
            .await
            .unwrap_or(Err(WebError::Late(total)))
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, WebError> {
        let connect = self.limits.connect;
        let connected = timeout(connect, self.connector.connect(request.uri())).await;
        let stream = connected.map_err(|_| WebError::Late(connect))??;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(WebError::Broken)?;
        let driver = tokio::spawn(connection);
        let answer = async {
            let answer = sender
                .send_request(in_origin_form(request)?)
                .await
                .map_err(WebError::Broken)?;
            self.whole(answer).await
        };
        let answer = answer.await;
        driver.abort();
        answer
    }

    async fn whole(&self, answer: Response<Incoming>) -> Result<Response<Bytes>, WebError> {
        let (head, mut body) = answer.into_parts();
        let most = self.limits.answer_bytes_max;
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(WebError::Broken)?.into_data() else {
                continue;
            };
            if whole.len().saturating_add(data.len()) > most {
                return Err(WebError::TooLong(most));
            }
            whole.extend_from_slice(&data);
        }
        Ok(Response::from_parts(head, whole.freeze()))
    }
}

/// The request as a server gets it: its path alone, and its host as a header.
fn in_origin_form(request: Request<Bytes>) -> Result<Request<Full<Bytes>>, WebError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or(WebError::Address)?;
    let at = authority
        .as_str()
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, at)| at);
    let host = HeaderValue::from_str(at).map_err(|_| WebError::Address)?;
    head.headers.insert(header::HOST, host);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse().map_err(|_| WebError::Address)?;
    Ok(Request::from_parts(head, Full::new(body)))
}

#[cfg(test)]
mod tests;

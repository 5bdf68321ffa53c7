//! Requests of weir's own to web servers: one at a time on a connection of its own, within limits, redirects not followed.
//! What clients ask providers goes another way, through Pingora.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, Uri, header, uri::Scheme};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::edges::roots::{RootsError, roots};

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

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WebClient {
    tls: TlsConnector,
    limits: WebLimits,
}

trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

impl WebClient {
    /// One that trusts the authorities in a PEM file's content, or else the platform's.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub(crate) fn new(ca: Option<&[u8]>, limits: WebLimits) -> Result<Self, RootsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        // This provider has what these versions need.
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|_| RootsError::Nobody)?;
        let config = builder.with_root_certificates(roots(ca)?).with_no_client_auth();
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
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
        let connected = timeout(connect, self.connect(request.uri())).await;
        let stream = connected.unwrap_or(Err(WebError::Late(connect)))?;
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

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Transport>, WebError> {
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().ok_or(WebError::Address)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(WebError::Connect)?;
        if !is_https {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|_| WebError::Address)?;
        let stream = self.tls.connect(name, stream).await.map_err(WebError::Connect)?;
        Ok(Box::new(stream))
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

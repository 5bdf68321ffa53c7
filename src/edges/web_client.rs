//! A client for weir's own requests to web servers, with timeouts and size limits. It does not follow redirects. The requests
//! that clients send to providers go through Pingora instead.

#[cfg(test)]
mod tests;

use std::{convert::Infallible, error::Error, io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, uri::Scheme};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::time::timeout;

/// The time for which an idle connection stays open. It is shorter than on most servers, so a server rarely closes the connection
/// first.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// The body of a request, which can be streamed.
pub(crate) type Upload = UnsyncBoxBody<Bytes, io::Error>;

/// The limits of a web client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebLimits {
    /// Timeout for opening a connection, TLS included.
    pub connect: Duration,
    /// Timeout from the name lookup to the last byte of the response; `None` if the caller limits the time itself.
    pub total: Option<Duration>,
    /// Maximum size of a response's body, in bytes.
    pub answer_bytes_max: usize,
    /// Maximum number of idle connections to each server.
    pub idle_max: usize,
}

/// The reason why a request failed. The messages do not contain the URL. Only a message about the name lookup or the certificate
/// may contain a part of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// The address is not an HTTP URL.
    #[error("the address is not an http:// or https:// URL with a host")]
    Address,
    /// The connection could not be established.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke off, or the server did not answer in HTTP. The server may have received the request.
    #[error("the connection was lost, or the answer is not HTTP: {0}")]
    Broken(String),
    /// The request timed out. The server may have received it.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The response's body has more than this number of bytes.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// An HTTP client. Cheap to clone. Must be used inside a Tokio runtime.
#[derive(Clone)]
pub(crate) struct WebClient {
    client: Client<TimeoutConnector<HttpsConnector<HttpConnector>>, Upload>,
    limits: WebLimits,
}

impl WebClient {
    /// Creates a client that trusts the CA certificates in the PEM text `ca`, or the platform's if `ca` is `None`.
    ///
    /// # Errors
    /// There are no CA certificates to trust.
    pub(crate) fn new(ca: Option<&[u8]>, limits: WebLimits) -> Result<Self, RootsError> {
        Self::with_roots(roots(ca)?, limits)
    }

    /// Creates a client that trusts the CA certificates in `roots`.
    ///
    /// # Errors
    /// TLS cannot be configured.
    pub(crate) fn with_roots(roots: RootCertStore, limits: WebLimits) -> Result<Self, RootsError> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| RootsError::Nobody)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // hyper divides this timeout among the addresses of a name, so that an unreachable one leaves time for the next.
        tcp.set_connect_timeout(Some(limits.connect));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let mut connector = TimeoutConnector::new(https);
        connector.set_connect_timeout(Some(limits.connect));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(limits.idle_max)
            .build(connector);
        Ok(Self { client, limits })
    }

    /// Sends a request to the server in the request's URL, and reads the complete response.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, WebError> {
        let whole = |bytes| {
            Full::new(bytes)
                .map_err(|never: Infallible| match never {})
                .boxed_unsync()
        };
        self.upload(request.map(whole)).await
    }

    /// Like [`WebClient::send`], for a request whose body can be streamed.
    pub(crate) async fn upload(&self, request: Request<Upload>) -> Result<Response<Bytes>, WebError> {
        match self.limits.total {
            None => self.exchange(request).await,
            Some(total) => timeout(total, self.exchange(request))
                .await
                .unwrap_or(Err(WebError::Late(total))),
        }
    }

    async fn exchange(&self, request: Request<Upload>) -> Result<Response<Bytes>, WebError> {
        let is_web = [Scheme::HTTP, Scheme::HTTPS]
            .iter()
            .any(|scheme| request.uri().scheme() == Some(scheme));
        if !is_web || request.uri().host().is_none() {
            return Err(WebError::Address);
        }
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|error| match innermost(&error) {
                (_, true) if error.is_connect() => WebError::Late(self.limits.connect),
                (why, _) if error.is_connect() => WebError::Connect(why),
                (why, _) => WebError::Broken(why),
            })?;
        self.read_response(answer).await
    }

    async fn read_response(&self, answer: Response<Incoming>) -> Result<Response<Bytes>, WebError> {
        let (head, mut body) = answer.into_parts();
        let most = self.limits.answer_bytes_max;
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| WebError::Broken(innermost(&error).0))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len().saturating_add(data.len()) > most {
                return Err(WebError::TooLong(most));
            }
            whole.extend_from_slice(&data);
        }
        Ok(Response::from_parts(head, whole.freeze()))
    }
}

/// Returns the message of the innermost cause of `error`, because the outer errors only say in which layer it occurred. The
/// boolean says whether one of the causes is a timeout.
fn innermost(error: &(dyn Error + 'static)) -> (String, bool) {
    let (mut inner, mut is_late) = (error, false);
    loop {
        let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
        is_late |= kind == Some(io::ErrorKind::TimedOut);
        match inner.source() {
            Some(source) => inner = source,
            None => return (inner.to_string(), is_late),
        }
    }
}

/// The reason why there are no CA certificates to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RootsError {
    /// The file has no certificate in PEM format, or one of its certificates cannot be used.
    #[error("the file has no CA certificate in PEM format, or one of its certificates is invalid")]
    NoAuthority,
    /// The platform has no CA certificates.
    #[error(
        "this machine has no CA certificates: install them (Debian: ca-certificates), or configure a file with CA certificates"
    )]
    Nobody,
}

/// Returns the CA certificates in the PEM text, or the platform's if `pem` is `None`.
pub(crate) fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => with_pem(RootCertStore::empty(), pem),
        None => check_non_empty(platform()),
    }
}

/// Returns the platform's CA certificates, and in addition those in the PEM text.
pub(crate) fn roots_with_platform(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => with_pem(platform(), pem),
        None => check_non_empty(platform()),
    }
}

fn platform() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Invalid certificates of the platform are ignored as long as at least one is valid.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn check_non_empty(roots: RootCertStore) -> Result<RootCertStore, RootsError> {
    if roots.is_empty() {
        return Err(RootsError::Nobody);
    }
    Ok(roots)
}

/// Adds the CA certificates in the PEM text, all of which must be valid.
fn with_pem(mut roots: RootCertStore, pem: &[u8]) -> Result<RootCertStore, RootsError> {
    let before = roots.len();
    for one in CertificateDer::pem_slice_iter(pem) {
        let added = one.ok().and_then(|one| roots.add(one).ok());
        added.ok_or(RootsError::NoAuthority)?;
    }
    if roots.len() == before {
        return Err(RootsError::NoAuthority);
    }
    Ok(roots)
}

#[cfg(test)]
mod roots_tests {
    use super::*;

    #[test]
    fn a_file_without_an_authority_is_told() {
        for wrong in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            for made in [roots, roots_with_platform] {
                let told = made(Some(wrong.as_bytes())).err();
                assert_eq!(told, Some(RootsError::NoAuthority), "{wrong}");
            }
        }
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let own = own.cert.pem();
        assert_eq!(roots(Some(own.as_bytes())).unwrap().len(), 1);
        let both = roots_with_platform(Some(own.as_bytes())).unwrap();
        assert_eq!(both.len(), platform().len() + 1);
    }
}

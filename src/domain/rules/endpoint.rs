//! The addresses of a provider: URL templates from provider files, base URLs from weir.toml, and the request targets that are
//! built from them.

use std::ops::Range;

use http::{HeaderValue, Uri, uri::InvalidUri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::domain::wire::operation::UpstreamOperation;

/// The placeholder for the model's name in a URL template.
const MODEL_MARK: &str = "{model}";

/// The characters of a model name that are percent-encoded in a URL: all except the unreserved characters of RFC 3986.
const MODEL_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An origin of a URL: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether the scheme is `https`; otherwise it is `http`.
    pub https: bool,
    /// The host's name or IP address; an IPv6 address has no brackets.
    pub host: String,
    /// The port, which is also set if it is the scheme's default.
    pub port: u16,
    /// The value of the `Host` header for requests to this origin.
    host_header: HeaderValue,
}

/// The request target (path and query) of one model at an endpoint. It is parsed when the configuration is loaded.
#[derive(Clone, Debug)]
pub(crate) struct EndpointTarget {
    /// The target from the provider file, without the client's query.
    plain: Uri,
    /// The query that clients usually send for the operation, and the target with that query appended. `None` if they usually
    /// send none.
    usual: Option<(&'static str, Uri)>,
}

/// The URL of an endpoint, with an optional placeholder for the model's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointTemplate {
    /// The URL's scheme, host and port.
    pub origin: Origin,
    /// Whether the provider also serves the operation over WebSocket at this URL.
    pub has_websocket: bool,
    path_and_query: String,
    model: Option<Range<usize>>,
}

impl Origin {
    fn new(https: bool, host: String, port: u16) -> Result<Self, UrlError> {
        let authority = authority(https, &host, port);
        let host_header = HeaderValue::try_from(authority).map_err(|_| UrlError::Authority)?;
        Ok(Self {
            https,
            host,
            port,
            host_header,
        })
    }

    /// Returns host and port as in a URL: an IPv6 address is in brackets, and the scheme's default port is left out.
    pub fn authority(&self) -> String {
        authority(self.https, &self.host, self.port)
    }

    /// Returns the value of the `Host` header for requests to this origin.
    pub fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

impl EndpointTarget {
    /// Parses `path_and_query` into a target. `usual_query` is the query that clients usually send for the operation.
    ///
    /// # Errors
    /// The target is longer than a [`Uri`] can be.
    fn new(path_and_query: &str, usual_query: Option<&'static str>) -> Result<Self, InvalidUri> {
        let usual = usual_query.map(|query| append_query(path_and_query, query).map(|target| (query, target)));
        Ok(Self {
            plain: path_and_query.parse()?,
            usual: usual.transpose()?,
        })
    }

    /// Returns the target with the client's query appended to the query from the provider file.
    ///
    /// # Errors
    /// The result is not a valid request target.
    pub(crate) fn with_query(&self, query: Option<&str>) -> Result<Uri, InvalidUri> {
        match (query, &self.usual) {
            (None, _) => Ok(self.plain.clone()),
            (Some(query), Some((usual, target))) if query == *usual => Ok(target.clone()),
            (Some(query), _) => {
                let plain = self.plain.path_and_query();
                append_query(plain.map_or("/", |target| target.as_str()), query)
            }
        }
    }
}

fn append_query(path_and_query: &str, query: &str) -> Result<Uri, InvalidUri> {
    let separator = if path_and_query.contains('?') { "&" } else { "?" };
    [path_and_query, separator, query].concat().parse()
}

/// The reason why a URL was refused. The message does not contain the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL begins with neither `https://` nor `http://`.
    #[error("expected a URL that begins with https:// or http://")]
    Scheme,
    /// The host or port is invalid.
    #[error("expected a host name or address, with an optional port from 1 to 65535 and without a user name")]
    Authority,
    /// The path is missing, or has characters that a request target cannot have.
    #[error("expected a path that begins with / and has only visible ASCII characters and no fragment")]
    Path,
    /// The URL contains braces other than those of one `{model}`.
    #[error("the URL can have only the placeholder {{model}}, at most once, and only in the path or query")]
    Placeholder,
    /// The base URL has a path.
    #[error(
        "the base_url must not have a path, because the paths come from the provider file: give scheme://host[:port]"
    )]
    BasePath,
}

impl Origin {
    /// Parses a base URL, which has the form `scheme://host[:port]` and optionally ends with `/`.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (origin, rest) = split_origin(text)?;
        if rest.is_empty() || rest == "/" {
            Ok(origin)
        } else {
            Err(UrlError::BasePath)
        }
    }
}

impl EndpointTemplate {
    /// Parses a URL of the form `scheme://host[:port]/path[?query]`, with at most one `{model}` after the host.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (origin, path_and_query) = split_origin(text)?;
        let allowed = |byte: u8| byte.is_ascii_graphic() && !b"#\"<>\\^`|".contains(&byte);
        if !path_and_query.starts_with('/') || !path_and_query.bytes().all(allowed) {
            return Err(UrlError::Path);
        }
        let model = path_and_query
            .find(MODEL_MARK)
            .map(|start| start..start + MODEL_MARK.len());
        let braces = path_and_query.bytes().filter(|byte| b"{}".contains(byte)).count();
        if braces != if model.is_some() { 2 } else { 0 } {
            return Err(UrlError::Placeholder);
        }
        Ok(Self {
            origin,
            has_websocket: false,
            path_and_query: path_and_query.to_owned(),
            model,
        })
    }

    /// Returns the request target for a model: path and query, with the model's percent-encoded name instead of the placeholder.
    pub fn fill(&self, upstream_model: &str) -> String {
        let mut path_and_query = self.path_and_query.clone();
        if let Some(range) = self.model.clone() {
            path_and_query.replace_range(range, &utf8_percent_encode(upstream_model, MODEL_ESCAPED).to_string());
        }
        path_and_query
    }

    /// Returns the parsed request target for a model. The result also contains the target with the query that clients usually
    /// send for `operation`.
    ///
    /// # Errors
    /// The target is longer than a [`Uri`] can be.
    pub(crate) fn target(
        &self,
        upstream_model: &str,
        operation: impl Into<UpstreamOperation>,
    ) -> Result<EndpointTarget, InvalidUri> {
        let operation = operation.into();
        EndpointTarget::new(&self.fill(upstream_model), operation.usual_query())
    }
}

fn authority(https: bool, host: &str, port: u16) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    match port == default_port(https) {
        true => host,
        false => format!("{host}:{port}"),
    }
}

fn default_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

fn split_origin(text: &str) -> Result<(Origin, &str), UrlError> {
    let (https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err(UrlError::Scheme),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or(UrlError::Authority)?;
    let (host, port) = split_port(authority)?;
    let port = match port {
        None => default_port(https),
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Authority)?
        }
        Some(_) => return Err(UrlError::Authority),
    };
    Ok((Origin::new(https, host, port)?, path))
}

fn split_port(authority: &str) -> Result<(String, Option<&str>), UrlError> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(UrlError::Authority)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Authority)?;
        return match (port.strip_prefix(':'), port.is_empty()) {
            (Some(port), _) => Ok((host.to_owned(), Some(port))),
            (None, true) => Ok((host.to_owned(), None)),
            (None, false) => Err(UrlError::Authority),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_host = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if is_host {
        Ok((host.to_ascii_lowercase(), port))
    } else {
        Err(UrlError::Authority)
    }
}

/// The URL templates of a provider's endpoints, one for each operation that the provider serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointTemplates(pub(super) Vec<(UpstreamOperation, EndpointTemplate)>);

impl EndpointTemplates {
    /// Returns the URL template of an operation; `None` if the provider does not serve it.
    pub fn get(&self, operation: impl Into<UpstreamOperation>) -> Option<&EndpointTemplate> {
        let operation = operation.into();
        self.0
            .iter()
            .find(|(served, _)| *served == operation)
            .map(|(_, template)| template)
    }

    /// Whether the provider also serves this operation over WebSocket.
    pub fn has_websocket(&self, operation: impl Into<UpstreamOperation>) -> bool {
        self.get(operation).is_some_and(|template| template.has_websocket)
    }

    /// Returns each operation that the provider serves, with its URL template.
    pub fn iter(&self) -> impl Iterator<Item = (UpstreamOperation, &EndpointTemplate)> {
        self.0.iter().map(|(operation, template)| (*operation, template))
    }

    /// Replaces the scheme, host and port of every endpoint with those of `origin`.
    pub fn set_origin(&mut self, origin: &Origin) {
        for (_, template) in &mut self.0 {
            template.origin = origin.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::operation::Operation;

    fn parsed(template: &str) -> EndpointTemplate {
        EndpointTemplate::parse(template).unwrap()
    }

    #[test]
    fn the_model_is_filled_in_and_encoded() {
        let template = parsed("https://h.example/v1beta/models/{model}:generateContent?x=1");
        assert_eq!(
            template.fill("a/b:c-1.2"),
            "/v1beta/models/a%2Fb%3Ac-1.2:generateContent?x=1"
        );
        let origin = &template.origin;
        assert_eq!(
            (origin.https, origin.host.as_str(), origin.port),
            (true, "h.example", 443)
        );
        assert_eq!(origin.authority(), "h.example");
        assert_eq!(parsed("https://h/p?m={model}").fill("../..\r\n"), "/p?m=..%2F..%0D%0A");
    }

    #[test]
    fn the_authority_names_a_port_of_its_own() {
        let authority = |url: &str| {
            let origin = parsed(url).origin;
            assert_eq!(origin.host_header(), &origin.authority());
            origin.authority()
        };
        assert_eq!(authority("http://127.0.0.1:9000/x"), "127.0.0.1:9000");
        assert_eq!(authority("http://[::1]:9000/x"), "[::1]:9000");
        assert_eq!(parsed("http://[::1]/x").origin.host, "::1");
        assert_eq!(authority("https://h:80/x"), "h:80");
    }

    #[test]
    fn a_target_has_the_clients_query_behind_its_own() {
        let targets = |url: &str, operation, query| {
            let target = parsed(url).target("m/1", operation).unwrap();
            target.with_query(query).map(|uri| uri.to_string())
        };
        for (url, operation) in [
            ("https://h/v1/{model}:s", Operation::StreamGenerateContent),
            ("https://h/v1/{model}:s", Operation::Messages),
            ("https://h/v1/{model}:s?a=b", Operation::StreamGenerateContent),
            ("https://h/v1?m={model}", Operation::Responses),
        ] {
            let plain = parsed(url).fill("m/1");
            assert_eq!(targets(url, operation, None).unwrap(), plain);
            let separator = if plain.contains('?') { '&' } else { '?' };
            // Queries that are usual for this operation or for another one, an unusual query, and an empty one.
            for query in ["alt=sse", "beta=true", "alt=sse&x=%20", ""] {
                let expected = format!("{plain}{separator}{query}");
                assert_eq!(targets(url, operation, Some(query)).unwrap(), expected);
            }
            assert!(targets(url, operation, Some("a b")).is_err());
        }
        let long = format!("https://h/{}", "a".repeat(1 << 16));
        assert!(parsed(&long).target("m", Operation::Messages).is_err());
    }

    #[test]
    fn wrong_urls_are_refused() {
        for (text, error) in [
            ("ftp://h/x", UrlError::Scheme),
            ("h/x", UrlError::Scheme),
            ("https:///x", UrlError::Authority),
            ("https://user:pw@h/x", UrlError::Authority),
            ("https://h:0/x", UrlError::Authority),
            ("https://h:65536/x", UrlError::Authority),
            ("https://h:+1/x", UrlError::Authority),
            ("https://[::1/x", UrlError::Authority),
            ("https://{model}/x", UrlError::Authority),
            ("https://h", UrlError::Path),
            ("https://h?x", UrlError::Path),
            ("https://h/x#y", UrlError::Path),
            ("https://h/a b", UrlError::Path),
            ("https://h/{modle}", UrlError::Placeholder),
            ("https://h/{model}/{model}", UrlError::Placeholder),
        ] {
            assert_eq!(EndpointTemplate::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_base_url_has_no_path() {
        let origin = Origin::parse("http://h:1/").unwrap();
        assert_eq!((origin.https, origin.host.as_str(), origin.port), (false, "h", 1));
        assert_eq!(Origin::parse("http://h:1/v1"), Err(UrlError::BasePath));
    }
}

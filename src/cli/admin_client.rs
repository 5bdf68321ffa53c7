//! The client that subcommands use to call the admin API of a running weir.

use std::{
    fs,
    io::Write,
    marker::PhantomData,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{
    api::{AdminError, AdminQuestion, wire::AdminCall},
    domain::{Version, ledger::OperationId},
};

#[cfg(test)]
use serde_json::Value;

/// The maximum size of a response, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The timeout of one call of the admin API.
const CALL_WAIT: Duration = Duration::from_secs(10);

/// The options of every command that calls a running weir.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientArgs {
    /// The admin socket of the running weir, as unix:PATH [default: the socket that the configuration names]
    #[arg(long, value_name = "unix:PATH", value_parser = unix_path)]
    pub admin: Option<PathBuf>,
    /// The configuration file that names the admin socket [default: /etc/weir/weir.toml]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// The reason why a command that calls a running weir failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminClientError {
    /// The configuration, which contains the path of the socket, cannot be read.
    #[error("{0}")]
    Configuration(String),
    /// No weir listens on the socket.
    #[error("cannot connect to weir on {}: {why}; start weir, or give the socket of a running weir with --admin unix:PATH", socket.display())]
    Unreachable {
        /// The path of the socket.
        socket: PathBuf,
        /// The error of the operating system.
        why: String,
    },
    /// The user is not allowed to connect to the socket.
    #[error("permission denied: {owner}; run the command as the owner or as a member of the group")]
    Forbidden {
        /// A description of the socket, or of the folder that denies access: its owner, group and mode.
        owner: String,
    },
    /// The arguments are not valid for this call.
    #[error("{0}")]
    Usage(String),
    /// The call was sent, but the response was lost.
    #[error("no response from weir on {}: {why}; the command may or may not have taken effect", socket.display())]
    AnswerLost {
        /// The path of the socket.
        socket: PathBuf,
        /// The error of the connection.
        why: String,
    },
    /// A change with an operation id was sent twice, and both responses were lost.
    #[error(
        "{lost}; run the same command again with --operation-id {id}, so that the change takes effect exactly once"
    )]
    Unsure {
        /// The error of the last attempt.
        lost: Box<AdminClientError>,
        /// The operation id of the change.
        id: String,
    },
    /// weir refused the call. Contains weir's message.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] std::io::Error),
}

/// Returns the path of the socket to connect to: the path in `--admin`, or otherwise the path in the configuration.
pub(crate) fn socket(
    args: &ClientArgs,
    from_conf: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
) -> Result<PathBuf, AdminClientError> {
    match &args.admin {
        Some(socket) => Ok(socket.clone()),
        None => from_conf(args.conf.as_deref()).map_err(AdminClientError::Configuration),
    }
}

/// Returns the message of an API error, with the name of the field replaced by the option of the command line: `--quota-usd`
/// instead of `quota_usd`.
fn message_with_option(error: &AdminError) -> String {
    let Some(field) = &error.field else {
        return error.message.clone();
    };
    let option = match field.as_str() {
        "expires_at" => "expires".to_owned(),
        "notify_percent" => "notify".to_owned(),
        "overlap_seconds" => "overlap".to_owned(),
        other => other.replace('_', "-"),
    };
    format!("--{option}: {}", error.message)
}

/// A response of the admin API: its JSON, from which a value of type `A` can be parsed.
#[derive(Debug)]
pub(crate) struct ClientReply<A> {
    /// The JSON of the response, as it is printed for scripts.
    pub(crate) text: String,
    of: PhantomData<A>,
}

impl<A: DeserializeOwned> ClientReply<A> {
    /// Parses the JSON of the response.
    pub(crate) fn read(&self) -> Result<A, AdminClientError> {
        serde_json::from_str(&self.text).map_err(|error| {
            AdminClientError::Refused(format!(
                "cannot read the response of weir: {error}; run the command with the version of weir that is running"
            ))
        })
    }
}

/// The body of an error response.
#[derive(Deserialize)]
struct ErrorBody {
    error: AdminError,
}

/// Writes a value as one line of JSON.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), AdminClientError> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Formats a value as a string. `None` becomes an empty string.
pub(crate) fn text_or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
fn text_of(body: Option<&Value>) -> String {
    body.map_or_else(String::new, Value::to_string)
}

fn unix_path(address: &str) -> Result<PathBuf, &'static str> {
    match address.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => Err("the address must have the form unix:PATH"),
    }
}

/// The method, the path and the body of a call.
type RawCall<'a> = (Method, &'a str, String);

/// A client of the admin API. It opens one connection to the API's socket for each call.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    socket: PathBuf,
}

impl AdminClient {
    /// Creates a client of the running weir that listens on `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Makes a call with the timeout [`CALL_WAIT`].
    pub(crate) async fn request<Q: AdminQuestion>(
        &self,
        question: &Q,
    ) -> Result<ClientReply<Q::Answer>, AdminClientError> {
        self.request_within(CALL_WAIT, None, question).await
    }

    /// Makes a call that takes effect only if the object still has the given version; `None` accepts any version.
    pub(crate) async fn request_if<Q: AdminQuestion>(
        &self,
        version: Option<Version>,
        question: &Q,
    ) -> Result<ClientReply<Q::Answer>, AdminClientError> {
        self.request_within(CALL_WAIT, version, question).await
    }

    /// Makes a call whose operation id ensures that it takes effect only once. Repeats the call if the first response is lost.
    pub(crate) async fn request_once<Q: AdminQuestion>(
        &self,
        question: &Q,
        id: &OperationId,
    ) -> Result<ClientReply<Q::Answer>, AdminClientError> {
        self.request_repeatable(None, question)
            .await
            .map_err(|error| match error {
                lost @ (AdminClientError::AnswerLost { .. } | AdminClientError::Unreachable { .. }) => {
                    AdminClientError::Unsure {
                        lost: Box::new(lost),
                        id: id.to_string(),
                    }
                }
                other => other,
            })
    }

    /// Makes an idempotent call. Repeats the call if the first response is lost.
    pub(crate) async fn request_repeatable<Q: AdminQuestion>(
        &self,
        version: Option<Version>,
        question: &Q,
    ) -> Result<ClientReply<Q::Answer>, AdminClientError> {
        match self.request_if(version, question).await {
            Err(AdminClientError::AnswerLost { .. }) => self.request_if(version, question).await,
            answer => answer,
        }
    }

    /// Makes a call with the timeout `wait`.
    pub(crate) async fn request_within<Q: AdminQuestion>(
        &self,
        wait: Duration,
        version: Option<Version>,
        question: &Q,
    ) -> Result<ClientReply<Q::Answer>, AdminClientError> {
        let AdminCall { target, body } =
            AdminCall::from_question(question).map_err(|error| AdminClientError::Usage(error.to_string()))?;
        let exchange = async {
            let answer = self.send((Q::METHOD, &target, body), version).await?;
            self.read(answer).await
        };
        let answer = tokio::time::timeout(wait, exchange).await;
        let text = answer.unwrap_or_else(|_| Err(self.lost("timeout")))?;
        Ok(ClientReply { text, of: PhantomData })
    }

    /// Makes a call by method and path. Returns the response's JSON, or the error's message.
    #[cfg(test)]
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AdminClientError> {
        self.call_within(CALL_WAIT, method, path, body).await
    }

    /// Makes a call by method and path, with the timeout `wait`.
    #[cfg(test)]
    pub(crate) async fn call_within(
        &self,
        wait: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AdminClientError> {
        self.exchange(wait, (method, path, text_of(body)), None).await
    }

    /// Makes a call by method and path. The call takes effect only if the object still has the given version; `None` accepts any
    /// version.
    #[cfg(test)]
    pub(crate) async fn call_if(
        &self,
        version: Option<Version>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AdminClientError> {
        self.exchange(CALL_WAIT, (method, path, text_of(body)), version).await
    }

    /// Makes a call and writes its response to `out` piece by piece. The timeout of each piece is [`CALL_WAIT`].
    pub(crate) async fn download<Q: AdminQuestion>(
        &self,
        question: &Q,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let call = AdminCall::from_question(question).map_err(|error| AdminClientError::Usage(error.to_string()))?;
        self.download_within(CALL_WAIT, &call.target, out).await
    }

    /// Makes a call and writes its response to `out` piece by piece. The timeout of each piece is `wait`.
    pub(crate) async fn download_within(
        &self,
        wait: Duration,
        path: &str,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let late = |_| self.lost("timeout");
        let sending = self.send((Method::GET, path, String::new()), None);
        let answer = tokio::time::timeout(wait, sending).await.map_err(late)??;
        if !answer.status().is_success() {
            return self.read(answer).await.map(drop);
        }
        let mut body = answer.into_body();
        while let Some(frame) = tokio::time::timeout(wait, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|error| self.lost(error))?;
            if let Some(piece) = frame.data_ref() {
                out.write_all(piece)?;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    async fn exchange(
        &self,
        wait: Duration,
        call: RawCall<'_>,
        version: Option<Version>,
    ) -> Result<Value, AdminClientError> {
        let exchange = async {
            let answer = self.send(call, version).await?;
            self.read(answer).await
        };
        let answer = tokio::time::timeout(wait, exchange).await;
        let text = answer.unwrap_or_else(|_| Err(self.lost("timeout")))?;
        serde_json::from_str(&text).map_err(|error| self.lost(error))
    }

    async fn send(
        &self,
        (method, path, text): RawCall<'_>,
        version: Option<Version>,
    ) -> Result<Response<Incoming>, AdminClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            let forbidden = (error.kind() == std::io::ErrorKind::PermissionDenied)
                .then(|| describe_owner(&self.socket))
                .flatten();
            forbidden.map_or_else(
                || self.unreachable(error),
                |owner| AdminClientError::Forbidden { owner },
            )
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(error))?;
        // The task ends when the sender is dropped, which is after the only call on this connection.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "weir")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(version) = version {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        let body = Full::new(Bytes::from(text));
        let request = request.body(body).map_err(|error| self.lost(error))?;
        sender.send_request(request).await.map_err(|error| self.lost(error))
    }

    async fn read(&self, answer: Response<Incoming>) -> Result<String, AdminClientError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let bytes = body.collect().await.map_err(|error| self.lost(error))?.to_bytes();
        if status.is_success() {
            return String::from_utf8(bytes.into()).map_err(|error| self.lost(error));
        }
        let refused: ErrorBody = serde_json::from_slice(&bytes).map_err(|error| self.lost(error))?;
        Err(AdminClientError::Refused(message_with_option(&refused.error)))
    }

    fn lost(&self, why: impl std::fmt::Display) -> AdminClientError {
        AdminClientError::AnswerLost {
            socket: self.socket.clone(),
            why: why.to_string(),
        }
    }

    fn unreachable(&self, why: impl std::fmt::Display) -> AdminClientError {
        AdminClientError::Unreachable {
            socket: self.socket.clone(),
            why: why.to_string(),
        }
    }
}

/// Describes the owner, group and mode of the socket. If the socket cannot be inspected, describes the nearest parent folder that
/// can be inspected, because that folder denies access. `None` if not even the root folder can be inspected.
pub(crate) fn describe_owner(socket: &Path) -> Option<String> {
    let (path, found) = socket
        .ancestors()
        .find_map(|path| Some((path, fs::symlink_metadata(path).ok()?)))?;
    let name = |table: &str, id: u32| {
        let text = fs::read_to_string(table).unwrap_or_default();
        name_of(&text, id).map_or_else(|| id.to_string(), str::to_owned)
    };
    Some(format!(
        "{} belongs to {}:{} (mode {:o})",
        path.display(),
        name("/etc/passwd", found.uid()),
        name("/etc/group", found.gid()),
        found.permissions().mode() & 0o777,
    ))
}

/// Returns the name of the user or group with this id. `table` is the content of a file such as `/etc/passwd` or `/etc/group`,
/// whose lines begin with `name:password:id:`.
fn name_of(table: &str, id: u32) -> Option<&str> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found = fields.nth(1)?.parse::<u32>().ok()?;
        (found == id && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_name_of_its_line() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:\nweir:x:990:990::/:/sbin/nologin\n";
        assert_eq!((name_of(table, 0), name_of(table, 990)), (Some("root"), Some("weir")));
        assert_eq!((name_of(table, 7), name_of(table, 5)), (None, None));
    }

    #[test]
    fn the_nearest_place_that_can_be_seen_is_described() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let told = describe_owner(&folder.path().join("none/admin.sock")).unwrap();
        let seen = folder.path().display().to_string();
        assert!(told.starts_with(&seen) && told.ends_with("(mode 750)"), "{told}");
    }
}

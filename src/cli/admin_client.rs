//! The client of the admin API, for the subcommands.

use std::{
    io::Write,
    marker::PhantomData,
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
#[cfg(test)]
use serde_json::Value;
use tokio::net::UnixStream;

use super::socket_owner;
use crate::{
    api::{Question, error::AdminError, wire::Call},
    domain::{ledger::OperationId, version::Version},
};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long one call may take.
const CALL_WAIT: Duration = Duration::from_secs(10);

/// What every client command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientArgs {
    /// The admin socket of a running weir, as unix:PATH [default: the one of the configuration]
    #[arg(long, value_name = "unix:PATH", value_parser = unix_path)]
    pub admin: Option<PathBuf>,
    /// The configuration that names the admin socket [default: /etc/weir/weir.toml]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Why a client command did not do as asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminClientError {
    /// The configuration does not tell the socket.
    #[error("{0}")]
    Configuration(String),
    /// Nobody answers.
    #[error("no weir answers on {}: {why}; start it, or name its socket with --admin unix:PATH", socket.display())]
    Unreachable {
        /// Where.
        socket: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The system lets this user not reach the socket.
    #[error("permission denied: {owner}; run this as its owner or as a member of its group")]
    Forbidden {
        /// Whose socket, or whose folder, it is.
        owner: String,
    },
    /// The arguments do not make a request.
    #[error("{0}")]
    Usage(String),
    /// weir was asked and its answer did not come.
    #[error("weir on {} gave no answer: {why}; it is not known whether it did as asked", socket.display())]
    AnswerLost {
        /// Where.
        socket: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The same of a change that is counted once.
    #[error("{lost}; run the same command again with --operation-id {id}, it counts once")]
    Unsure {
        /// What happened.
        lost: Box<AdminClientError>,
        /// By what the change is known.
        id: String,
    },
    /// weir said no.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] std::io::Error),
}

/// The socket to use: `--admin`, or what the configuration says.
pub(crate) fn socket(
    args: &ClientArgs,
    from_conf: impl FnOnce(Option<&Path>) -> Result<PathBuf, String>,
) -> Result<PathBuf, AdminClientError> {
    match &args.admin {
        Some(socket) => Ok(socket.clone()),
        None => from_conf(args.conf.as_deref()).map_err(AdminClientError::Configuration),
    }
}

/// The API names fields, the command line options: `quota_usd` is `--quota-usd` here.
fn in_options(error: &AdminError) -> String {
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

/// An answer as it came, which scripts are given, and what it says.
#[derive(Debug)]
pub(crate) struct Reply<A> {
    /// The JSON.
    pub(crate) text: String,
    of: PhantomData<A>,
}

impl<A: DeserializeOwned> Reply<A> {
    /// The answer.
    pub(crate) fn read(&self) -> Result<A, AdminClientError> {
        serde_json::from_str(&self.text)
            .map_err(|error| AdminClientError::Refused(format!("weir's answer is another one: {error}")))
    }
}

/// The body of an answer that is an error.
#[derive(Deserialize)]
struct Refusal {
    error: AdminError,
}

/// Writes a value of an answer as a line of JSON.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), AdminClientError> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// A value as text; an empty one where there is none.
pub(crate) fn or_nothing(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
fn text_of(body: Option<&Value>) -> String {
    body.map_or_else(String::new, Value::to_string)
}

fn unix_path(address: &str) -> Result<PathBuf, &'static str> {
    match address.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => Err("give it as unix:PATH"),
    }
}

/// A method, a path and a body.
type Sent<'a> = (Method, &'a str, String);

/// Calls the API over its socket, one connection per call.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    socket: PathBuf,
}

impl AdminClient {
    /// A client of the weir that listens there.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Asks a question.
    pub(crate) async fn ask<Q: Question>(&self, question: &Q) -> Result<Reply<Q::Answer>, AdminClientError> {
        self.ask_within(CALL_WAIT, None, question).await
    }

    /// Asks for a change that is made of this version alone; `None`: of any.
    pub(crate) async fn ask_if<Q: Question>(
        &self,
        version: Option<Version>,
        question: &Q,
    ) -> Result<Reply<Q::Answer>, AdminClientError> {
        self.ask_within(CALL_WAIT, version, question).await
    }

    /// Asks for a change that is counted once, by an operation id in the question. When its answer is lost, it is asked for once
    /// more.
    pub(crate) async fn ask_twice<Q: Question>(
        &self,
        question: &Q,
        id: &OperationId,
    ) -> Result<Reply<Q::Answer>, AdminClientError> {
        self.ask_again(None, question).await.map_err(|error| match error {
            lost @ (AdminClientError::AnswerLost { .. } | AdminClientError::Unreachable { .. }) => {
                AdminClientError::Unsure {
                    lost: Box::new(lost),
                    id: id.to_string(),
                }
            }
            other => other,
        })
    }

    /// Asks for a change that asked for twice is made once. When its answer is lost, it is asked for once more.
    pub(crate) async fn ask_again<Q: Question>(
        &self,
        version: Option<Version>,
        question: &Q,
    ) -> Result<Reply<Q::Answer>, AdminClientError> {
        match self.ask_if(version, question).await {
            Err(AdminClientError::AnswerLost { .. }) => self.ask_if(version, question).await,
            answer => answer,
        }
    }

    /// Asks a question whose answer may take so long.
    pub(crate) async fn ask_within<Q: Question>(
        &self,
        wait: Duration,
        version: Option<Version>,
        question: &Q,
    ) -> Result<Reply<Q::Answer>, AdminClientError> {
        let Call { target, body } = Call::of(question).map_err(|error| AdminClientError::Usage(error.to_string()))?;
        let exchange = async {
            let answer = self.send((Q::METHOD, &target, body), version).await?;
            self.read(answer).await
        };
        let answer = tokio::time::timeout(wait, exchange).await;
        let text = answer.unwrap_or_else(|_| Err(self.lost("no answer in time")))?;
        Ok(Reply { text, of: PhantomData })
    }

    /// One call; the answer's JSON, or the API's own message.
    #[cfg(test)]
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AdminClientError> {
        self.call_within(CALL_WAIT, method, path, body).await
    }

    /// The same for a call that may take longer.
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

    /// One call for a change that is made of this version alone; `None`: of any.
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

    /// Reads an answer that comes in pieces into `out`. Waits for each of them as long as for a whole call.
    pub(crate) async fn download<Q: Question>(
        &self,
        question: &Q,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let call = Call::of(question).map_err(|error| AdminClientError::Usage(error.to_string()))?;
        self.download_within(CALL_WAIT, &call.target, out).await
    }

    /// The same for one whose pieces may take longer.
    pub(crate) async fn download_within(
        &self,
        wait: Duration,
        path: &str,
        out: &mut impl Write,
    ) -> Result<(), AdminClientError> {
        let late = |_| self.lost("no answer in time");
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
        call: Sent<'_>,
        version: Option<Version>,
    ) -> Result<Value, AdminClientError> {
        let exchange = async {
            let answer = self.send(call, version).await?;
            self.read(answer).await
        };
        let answer = tokio::time::timeout(wait, exchange).await;
        let text = answer.unwrap_or_else(|_| Err(self.lost("no answer in time")))?;
        serde_json::from_str(&text).map_err(|error| self.lost(error))
    }

    async fn send(
        &self,
        (method, path, text): Sent<'_>,
        version: Option<Version>,
    ) -> Result<Response<Incoming>, AdminClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            let forbidden = (error.kind() == std::io::ErrorKind::PermissionDenied)
                .then(|| socket_owner::describe(&self.socket))
                .flatten();
            forbidden.map_or_else(
                || self.unreachable(error),
                |owner| AdminClientError::Forbidden { owner },
            )
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(error))?;
        // Ends with the one call that is made on it: nobody has the sender any more.
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
        let refused: Refusal = serde_json::from_slice(&bytes).map_err(|error| self.lost(error))?;
        Err(AdminClientError::Refused(in_options(&refused.error)))
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

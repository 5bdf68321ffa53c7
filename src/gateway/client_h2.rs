//! The client's side of a request over HTTP/2. The [`WriteGate`] delays the answer's head and last bytes. The end of the
//! request's body may arrive during the answer, and the request may outlive its client.
//!
//! Pingora drives the HTTP/2 connection, so weir notices the end of the connection or stream only when Pingora's own session
//! reports it. [`ClientH2`] wraps that session and passes everything through until the session reports that the client has
//! disconnected. If the [`Presence`] then detaches the answer, [`ClientH2`] resets the stream, discards later writes, and keeps
//! later reads pending. The accept loop owns the connection. When the loop ends, it closes the connection, even if requests are
//! still running here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use pingora::{
    Error, ErrorSource, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    protocols::{
        Digest,
        http::{
            HttpTask,
            custom::{CustomMessageWrite, server::Session},
            v2::server::HttpSession,
        },
        l4::socket::SocketAddr,
    },
};

use crate::{
    domain::faults::{BodyTime, PeerPace},
    edges::clock,
    front::ClientTimes,
    gateway::{presence::Presence, provider_state::WriteGate, request::head},
};

/// A wrapper around Pingora's session for one HTTP/2 stream.
pub(crate) struct ClientH2 {
    session: HttpSession,
    /// Tracks whether the client is connected; `None` if the request ends with its client.
    presence: Option<Arc<Presence>>,
    gate: Arc<WriteGate>,
    /// The declared length of the request's body in bytes; `None` if no length is declared. The body is complete once this number
    /// of bytes has arrived, even if its stream has not ended.
    length: Option<u64>,
    /// Limits the time in which the rest of the request's body must arrive.
    sending: BodyTime,
    /// Enforces the minimum speed at which the client has to read its answer.
    write_pace: PeerPace,
    /// The answer's head, if weir discarded it because the client had already disconnected.
    discarded_head: Option<Box<ResponseHeader>>,
}

impl ClientH2 {
    /// Wraps Pingora's session of one request.
    pub(crate) fn new(
        session: HttpSession,
        presence: Option<Arc<Presence>>,
        gate: Arc<WriteGate>,
        times: ClientTimes,
    ) -> Self {
        Self {
            length: head::content_length(&session.req_header().headers),
            session,
            presence,
            gate,
            sending: BodyTime::new(times.body, clock::instant()),
            write_pace: PeerPace::new(times.answer),
            discarded_head: None,
        }
    }

    fn is_gone(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Whether all of the request's body has arrived.
    fn is_body_complete(&self) -> bool {
        let has_length = |length| self.session.body_bytes_read() as u64 >= length;
        self.session.is_body_done() || self.length.is_some_and(has_length)
    }

    /// Handles a failed read or write. Returns the error, unless the answer is detached.
    fn on_client_failure(&mut self, error: Box<Error>) -> Result<()> {
        if !self.presence.as_ref().is_some_and(|presence| presence.on_disconnect()) {
            return Err(error);
        }
        // Resets the stream of a client that reads nothing; any other client has closed it already.
        self.session.shutdown();
        Ok(())
    }

    fn discard(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let mut end = false;
        for task in tasks {
            end |= task.is_end();
            match task {
                HttpTask::Header(head, _) => self.discard_head(head),
                HttpTask::Failed(error) => return Err(error),
                HttpTask::Body(..) | HttpTask::UpgradedBody(..) | HttpTask::Trailer(_) | HttpTask::Done => {}
            }
        }
        Ok(end)
    }

    fn discard_head(&mut self, head: Box<ResponseHeader>) {
        if !head.status.is_informational() {
            self.discarded_head.get_or_insert(head);
        }
    }
}

/// Returns the result of a write, or an error if the write has not completed at `due`.
async fn within<T>(due: Instant, write: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::explain(ErrorType::WriteTimedout, "the client reads its answer too slowly").into_down();
    let written = tokio::time::timeout_at(due.into(), write).await;
    written.unwrap_or_else(|_| Err(late()))
}

/// Waits until the held head of the answer must be sent; never returns if no head is held.
async fn head_due(gate: &WriteGate) {
    match gate.head.due() {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until `due`; never returns if `due` is `None`.
async fn body_due(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn late_body() -> Box<Error> {
    Error::explain(ErrorType::ReadTimedout, "the client sends its body too slowly").into_down()
}

fn body_bytes(task: &HttpTask) -> usize {
    match task {
        HttpTask::Body(Some(data), _) => data.len(),
        _ => 0,
    }
}

#[async_trait]
impl Session for ClientH2 {
    fn req_header(&self) -> &RequestHeader {
        self.session.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.session.req_header_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        self.session.read_body_bytes().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.session.drain_request_body().await
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, end: bool) -> Result<()> {
        if self.is_gone() {
            self.discard_head(head);
            return Ok(());
        }
        self.session
            .write_response_header(head, end)
            .or_else(|error| self.on_client_failure(error))
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(head.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.gate.open().await;
        let bytes = data.len();
        let due = self.write_pace.begin_wait(clock::instant());
        let written = within(due, self.session.write_body(data, end)).await;
        self.write_pace.on_moved(bytes, clock::instant);
        written.or_else(|error| self.on_client_failure(error))
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.session
            .write_trailers(trailers)
            .or_else(|error| self.on_client_failure(error))
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        if self.is_gone() {
            return self.discard(tasks);
        }
        self.gate.open().await;
        let end = tasks.iter().any(HttpTask::is_end);
        let bytes = tasks.iter().map(body_bytes).sum();
        let due = self.write_pace.begin_wait(clock::instant());
        let written = within(due, self.session.response_duplex_vec(tasks)).await;
        self.write_pace.on_moved(bytes, clock::instant);
        match written {
            Err(error) if *error.esource() == ErrorSource::Downstream => self.on_client_failure(error).map(|()| end),
            done => done,
        }
    }

    fn set_read_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.session.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.session.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.session.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.session.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.session.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.session.response_written().or(self.discarded_head.as_deref())
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.session.shutdown();
    }

    fn is_body_done(&mut self) -> bool {
        self.is_body_complete()
    }

    async fn finish(&mut self) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.session.finish()
    }

    fn is_body_empty(&mut self) -> bool {
        self.session.is_body_empty()
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !self.is_gone() {
            let is_idle = no_body_expected || self.is_body_complete();
            let due = (!is_idle).then(|| self.sending.begin_wait(clock::instant()));
            let read = loop {
                tokio::select! {
                    read = self.session.read_body_or_idle(is_idle) => break read,
                    () = head_due(&self.gate) => {}
                    () = body_due(due) => return Err(late_body()),
                }
                if let Some(head) = self.gate.head.take() {
                    self.write_response_header(head, false).await?;
                }
            };
            match read {
                Err(error) if is_idle => self.on_client_failure(error)?,
                Ok(piece) => {
                    self.sending
                        .on_moved(piece.as_ref().map_or(0, Bytes::len), clock::instant);
                    return Ok(piece);
                }
                Err(error) => return Err(error),
            }
        }
        std::future::pending().await
    }

    fn body_bytes_sent(&self) -> usize {
        self.session.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.session.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.session.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.session.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.session.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.session.server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.session.pseudo_raw_h1_request_header()
    }

    fn enable_retry_buffering(&mut self) {
        self.session.enable_retry_buffering();
    }

    fn retry_buffer_truncated(&self) -> bool {
        self.session.retry_buffer_truncated()
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.session.get_retry_buffer()
    }

    // The remaining methods are for protocols with custom messages, which HTTP/2 does not have.

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync>,
    ) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "HTTP/2 has no custom messages")
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "HTTP/2 has no custom messages")
    }
}

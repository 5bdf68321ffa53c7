//! Connects a request on a socket with its socket. The request's head carries the link. Through the link, the gateway's hooks
//! find the write gate, the presence of the client, and the message that becomes the request's body.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use pingora_proxy::Session;
use smol_str::SmolStr;

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::responses_socket::{
            ConversationOwner, SocketLane,
            client_frame::{ClientFrame, join_items},
            provider_frame::CreateFrame,
            server_frame::CompletedResponse,
        },
    },
    edges::body_budget::BodyReservation,
    gateway::{
        conversations::Conversations,
        lines::{LineContinuation, LineProgress, SocketLines},
        presence::Presence,
        provider_state::WriteGate,
        request::{
            body::{self, BodyFraming, RequestBody},
            body_work::{FREE_BYTES_MAX, KeyWork},
            read_body::AT_ONCE_BYTES_MAX,
        },
    },
    telemetry::{access_log::SocketMark, metrics::Metrics},
};

/// The message with which a client requests a response, with the reservations of its memory.
#[derive(Debug)]
pub(crate) struct TurnMessage {
    pub frame: ClientFrame,
    /// The memory reservation of the message. It becomes the reservation of the request's body.
    pub lease: BodyReservation,
    /// The memory reservation for a copy of the conversation. The copy is stored while the answer runs. The reservation is empty
    /// at first.
    pub conversation_lease: BodyReservation,
}

/// The lane and the socket of a request.
#[derive(Clone, Debug)]
pub(crate) struct TurnOrigin {
    pub at: SocketLane,
    /// The digest of the key with which the socket was opened. The socket's conversations use this key's share of memory.
    pub owner: ConversationOwner,
    /// The socket's identifier in the access log.
    pub socket_id: SmolStr,
    /// The name of the lane; `None` for the default lane.
    pub stream_id: Option<SmolStr>,
}

/// A conversation that can be continued after the running answer is complete.
#[derive(Debug)]
struct PendingConversation {
    /// All items of the input: JSON values with commas in between, without the brackets of the array.
    items: Vec<u8>,
    /// This request has added this number of bytes at the end of `items`.
    new_bytes: usize,
    #[expect(dead_code, reason = "held until the answer ends")]
    lease: BodyReservation,
}

/// The WebSockets over which a request may reach providers.
#[derive(Debug, Default)]
struct TurnLines {
    /// The WebSockets of the request's socket; empty before [`TurnLink::use_lines`] is called.
    of_socket: OnceLock<Arc<SocketLines>>,
    /// The progress of the current attempt on a WebSocket; `None` if the attempt uses no WebSocket.
    progress: Mutex<Option<Arc<LineProgress>>>,
}

/// The link between a request and its socket.
#[derive(Debug)]
pub(crate) struct TurnLink {
    origin: TurnOrigin,
    conversations: Arc<Conversations>,
    gate: Arc<WriteGate>,
    /// The presence of the client; empty if the request ends when its client disconnects.
    presence: OnceLock<Arc<Presence>>,
    lines: TurnLines,
    /// The message. If it was not stored, this is the refusal that is sent to the client instead. `None` after the body has been
    /// read.
    message: Mutex<Option<Result<TurnMessage, Refusal>>>,
    /// If the request continues a stored conversation, the id of the previous response; otherwise `None`.
    parent: Mutex<Option<String>>,
    /// The conversation to be stored when the answer is complete; `None` if the socket stores none.
    conversation: Mutex<Option<PendingConversation>>,
    is_warm_up: AtomicBool,
    /// Whether the request was refused because its key is not valid.
    is_key_refused: AtomicBool,
}

impl TurnLink {
    /// Creates the link of a request that begins with this message.
    pub(crate) fn new(
        origin: TurnOrigin,
        conversations: Arc<Conversations>,
        message: Result<TurnMessage, Refusal>,
    ) -> Arc<Self> {
        Arc::new(Self {
            origin,
            conversations,
            gate: Arc::default(),
            presence: OnceLock::new(),
            lines: TurnLines::default(),
            message: Mutex::new(Some(message)),
            parent: Mutex::new(None),
            conversation: Mutex::new(None),
            is_warm_up: AtomicBool::new(false),
            is_key_refused: AtomicBool::new(false),
        })
    }

    /// The gate that delays the last bytes of the answer.
    pub(crate) fn gate(&self) -> &Arc<WriteGate> {
        &self.gate
    }

    /// Lets the request outlive its client.
    pub(crate) fn watch(&self, presence: &Arc<Presence>) {
        // A request has one presence, so the cell is empty.
        let _ = self.presence.set(Arc::clone(presence));
    }

    /// The presence of the client; `None` if the request ends when its client disconnects.
    pub(crate) fn presence(&self) -> Option<&Arc<Presence>> {
        self.presence.get()
    }

    /// Lets the request use the WebSockets that its socket has to providers.
    pub(crate) fn use_lines(&self, lines: &Arc<SocketLines>) {
        // A request belongs to one socket, so the cell is empty.
        let _ = self.lines.of_socket.set(Arc::clone(lines));
    }

    /// The WebSockets that the request's socket has to providers; `None` before [`Self::use_lines`] is called.
    pub(crate) fn lines(&self) -> Option<&Arc<SocketLines>> {
        self.lines.of_socket.get()
    }

    /// Sets the progress of the current attempt on a WebSocket to the provider; `None` if the attempt uses no WebSocket.
    pub(crate) fn set_line_progress(&self, progress: Option<Arc<LineProgress>>) {
        *self.lines.progress.lock() = progress;
    }

    /// Whether the current attempt uses a WebSocket and the provider has not read the request.
    pub(crate) fn is_unread_on_line(&self) -> bool {
        self.lines
            .progress
            .lock()
            .as_ref()
            .is_some_and(|progress| progress.is_unread())
    }

    /// The number of the request's lane on its socket; 0 for the default lane.
    pub(crate) fn lane(&self) -> u8 {
        self.origin.at.lane
    }

    /// The name of the request's lane; `None` for the default lane.
    pub(crate) fn stream_id(&self) -> Option<&str> {
        self.origin.stream_id.as_deref()
    }

    /// The request's socket and lane for the access log.
    pub(crate) fn mark(&self) -> SocketMark {
        SocketMark {
            id: self.origin.socket_id.clone(),
            lane: Some(self.origin.at.lane),
        }
    }

    /// Whether the client only prepares a conversation, so that no model is called. Known once the body has been read.
    pub(crate) fn is_warm_up(&self) -> bool {
        self.is_warm_up.load(Ordering::Relaxed)
    }

    /// Records that weir has refused the request because its key is not valid.
    pub(crate) fn on_key_refused(&self) {
        self.is_key_refused.store(true, Ordering::Relaxed);
    }

    /// Whether weir has refused the request because its key is not valid. A 401 from the provider does not count.
    pub(crate) fn is_key_refused(&self) -> bool {
        self.is_key_refused.load(Ordering::Relaxed)
    }

    /// Does the same as [`Self::read_body`], but charges the work to the key, as for the scan of a body. The copies of a large
    /// conversation are made on a thread that carries no requests.
    ///
    /// # Errors
    /// The errors of [`Self::read_body`]; [`Refusal::BodyWorkLimited`] if too many large bodies of the key wait.
    pub(crate) async fn read_body_in_share(
        self: Arc<Self>,
        bytes_max: usize,
        metrics: Arc<Metrics>,
        work: &KeyWork,
    ) -> Result<(RequestBody, Option<&'static str>), Refusal> {
        match self.body_bytes() {
            0..=FREE_BYTES_MAX => self.read_body(bytes_max, &metrics),
            length if length <= AT_ONCE_BYTES_MAX && work.can_run_now() => {
                work.run_charged(|| self.read_body(bytes_max, &metrics))
            }
            _ => work.run_in_turn(move || self.read_body(bytes_max, &metrics)).await?,
        }
    }

    /// The total number of bytes of the message and the conversation that it continues; 0 if the message was not stored.
    fn body_bytes(&self) -> usize {
        let message = self.message.lock();
        let Some(Ok(TurnMessage { frame, .. })) = &*message else {
            return 0;
        };
        let previous = frame.previous_response_id();
        let kept = previous.and_then(|id| self.conversations.find(self.origin.at.socket, &id));
        frame.text().len() + kept.map_or(0, |kept| kept.len())
    }

    /// Turns the message into the body that the client would have sent in a POST. The body has at most `bytes_max` bytes. If the
    /// message cannot be turned into a body, returns the unchanged message as the body, together with the reason. The scan checks
    /// this body, too.
    ///
    /// # Errors
    /// Returns the refusal if the message was not stored, if the body would be too large, or if no memory is left for it.
    pub(crate) fn read_body(
        &self,
        bytes_max: usize,
        metrics: &Metrics,
    ) -> Result<(RequestBody, Option<&'static str>), Refusal> {
        let message = self.message.lock().take();
        let TurnMessage {
            frame,
            mut lease,
            conversation_lease,
        } = message.unwrap_or(Err(Refusal::Internal))?;
        let received = frame.text().len();
        let own = frame.input_items();
        let previous = frame.previous_response_id();
        let kept = previous
            .as_deref()
            .and_then(|id| self.conversations.find(self.origin.at.socket, id));
        if previous.is_some() && (kept.is_some() || frame.is_unstored()) {
            metrics.sockets.record_continuation(kept.is_some());
        }
        let kept_bytes = kept.as_ref().map_or(0, Bytes::len);
        if received.saturating_add(kept_bytes) > bytes_max {
            return Err(Refusal::BodyTooLarge {
                limit_bytes: bytes_max as u64,
            });
        }
        body::grow_lease(&mut lease, kept_bytes)?;
        let joined = kept
            .as_ref()
            .zip(own.as_deref())
            .map(|(kept, own)| join_items(kept, own));
        let bytes = Bytes::from(frame.to_body(joined.as_deref()));
        if joined.is_some() {
            *self.parent.lock() = previous.map(|id| id.into_owned());
        }
        let new_bytes = own.as_deref().map_or(0, <[u8]>::len);
        let is_warm_up = frame.is_warm_up();
        self.is_warm_up.store(is_warm_up, Ordering::Relaxed);
        if (frame.is_unstored() || is_warm_up)
            && let Some(items) = joined.or_else(|| own.map(|own| own.into_owned()))
        {
            self.keep_input(items, new_bytes, conversation_lease);
        }
        let body = RequestBody::new(bytes, BodyFraming::Sized, received, None, lease);
        Ok((body, frame.fault()))
    }

    /// If there is memory for the input, stores the input until the answer ends. If there is no memory, a later request cannot
    /// continue the response, and the client has to send the complete input again.
    fn keep_input(&self, items: Vec<u8>, new_bytes: usize, mut lease: BodyReservation) {
        if body::grow_lease(&mut lease, items.len()).is_ok() {
            *self.conversation.lock() = Some(PendingConversation {
                items,
                new_bytes,
                lease,
            });
        }
    }

    /// Returns the request as a continuation of the previous response. The continuation can be sent only on the WebSocket that
    /// carried that response. Returns `None` if the request continues no stored conversation. `body` is the complete body for the
    /// provider.
    pub(crate) fn continuation(&self, body: &Bytes) -> Option<LineContinuation> {
        let parent = self.parent.lock().clone()?;
        let conversation = self.conversation.lock();
        let PendingConversation { items, new_bytes, .. } = conversation.as_ref()?;
        let frame = CreateFrame::continuing(body, &parent, (items.as_slice(), *new_bytes))?;
        Some(LineContinuation { parent, frame })
    }

    /// Whether the socket needs the items of the answer.
    pub(crate) fn has_conversation(&self) -> bool {
        self.conversation.lock().is_some()
    }

    /// Ends the request without changing the conversation. A later request can continue the same response again.
    pub(crate) fn leave_conversation(&self) {
        self.conversation.lock().take();
        self.parent.lock().take();
    }

    /// Drops the conversation of the request's lane, because its socket has ended.
    pub(crate) fn forget_conversation(&self) {
        self.conversations.remove(self.origin.at);
    }

    /// Ends the request's part in the conversation. After a complete response, stores the conversation, which can then be
    /// continued. After any other end (`None`), drops the conversation that the request continued.
    pub(crate) fn finish_conversation(&self, completed: Option<CompletedResponse>) {
        let (pending, parent) = (self.conversation.lock().take(), self.parent.lock().take());
        match (completed, pending) {
            (Some(response), Some(pending)) => {
                let items = Bytes::from(join_items(&pending.items, &response.output));
                let TurnOrigin { at, owner, .. } = &self.origin;
                self.conversations.insert(*at, *owner, response.id, items);
            }
            (Some(_), None) => {}
            (None, _) => {
                if let Some(parent) = parent {
                    self.conversations.remove_response(self.origin.at, &parent);
                }
            }
        }
    }
}

/// Returns the link of a request on a socket; `None` for any other request.
pub(crate) fn turn_link(session: &Session) -> Option<&Arc<TurnLink>> {
    session.req_header().extensions.get()
}

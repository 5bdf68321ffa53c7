//! Handles the messages of a socket: starts their requests, lets them wait for their lanes, or refuses them in a frame.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use smol_str::SmolStr;

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::responses_socket::{
            client_frame::{ClientFrame, ClientFrameKind, InvalidStreamId},
            server_frame::{SocketError, write_event},
        },
    },
    edges::{body_budget::BodyReservation, clock},
    gateway::{
        request::{
            body_work::FREE_BYTES_MAX,
            read_body::{self, AT_ONCE_TOKENS_MAX},
        },
        socket::{PendingClose, Socket, SocketClose, lanes::ReadyTurn, messages::CompleteMessage, turn::TurnHost},
        turn_link::TurnMessage,
    },
    telemetry::metrics::SocketEnd,
};

/// The error with which weir answers a message of the type `response.steer`. weir does not support steering.
const STEERING_FAILED: &str = concat!(
    r#"{"type":"response.steer.failed","error":{"type":"invalid_request_error","code":"steering_not_supported","#,
    r#""message":"This service does not support steering.","param":null}}"#
);

impl Socket {
    /// Handles a complete message.
    pub(super) async fn on_message(&mut self, message: CompleteMessage) {
        let CompleteMessage { length, content } = message;
        self.end_if_switched_off();
        let read = match content {
            Ok((text, lease)) => {
                let frame = self.stream.serve_while(read_frame(&self.host, text)).await;
                frame.map(|frame| (frame, lease))
            }
            Err(refusal) => Err(refusal),
        };
        match read {
            Ok((frame, lease)) => self.on_frame(frame, lease),
            // The lane is unknown, because the message was not read.
            Err(refusal) => self.offer(ReadyTurn {
                lane: 0,
                stream_id: None,
                length,
                content: Err(refusal),
            }),
        }
    }

    fn on_frame(&mut self, frame: ClientFrame, lease: BodyReservation) {
        match frame.kind() {
            ClientFrameKind::Create => self.on_create(frame, lease),
            ClientFrameKind::Ignored => {}
            ClientFrameKind::Steer => self.refuse_steering(&frame),
            ClientFrameKind::Unknown => {
                let message = "The type of this message is unknown. Send `response.create`.";
                let error = SocketError::new(400, "unknown_event_type", message);
                self.refuse(None, "unknown_event_type", &error);
            }
        }
    }

    fn on_create(&mut self, frame: ClientFrame, lease: BodyReservation) {
        let stream_id: Option<SmolStr> = match frame.stream_id() {
            Ok(name) => name.map(|name| SmolStr::new(&name)),
            Err(InvalidStreamId) => {
                let message = "`stream_id` must have 1 to 256 letters, digits, `_`, `.` and `-`.";
                let error = SocketError::new(400, "invalid_stream_id", message);
                return self.refuse(None, "invalid_stream_id", &error);
            }
        };
        if let Some(pending) = self.pending {
            return self.refuse_late(stream_id.as_deref(), pending.close.end);
        }
        let Some(lane) = self.lanes.number(stream_id.as_deref()) else {
            let message =
                "This socket has too many values of `stream_id`. Use one of them again, or open another socket.";
            let error = SocketError::new(400, "websocket_stream_limit_reached", message);
            return self.refuse(stream_id.as_deref(), "websocket_stream_limit_reached", &error);
        };
        let message = TurnMessage {
            lease,
            conversation_lease: self.messages.reservation(),
            frame,
        };
        self.offer(ReadyTurn {
            lane,
            stream_id,
            length: message.frame.text().len() as u64,
            content: Ok(message),
        });
    }

    /// Starts a request, lets it wait for its lane, or refuses it.
    fn offer(&mut self, turn: ReadyTurn) {
        if let Some(pending) = self.pending {
            return self.refuse_late(turn.stream_id.as_deref(), pending.close.end);
        }
        match self.lanes.offer(turn) {
            Ok(Some(turn)) => self.start(turn),
            Ok(None) => {}
            Err(turn) => {
                let message = "Too many requests wait on this socket. Send this one again when one has ended.";
                let error = SocketError::new(429, "websocket_queue_full", message).retry_after(1);
                self.refuse(turn.stream_id.as_deref(), "websocket_queue_full", &error);
            }
        }
    }

    fn start(&mut self, turn: ReadyTurn) {
        self.turns += 1;
        self.host.gateway.metrics().sockets.turns.inc();
        let (lane, stream_id) = (turn.lane, turn.stream_id.clone());
        let pieces = self.host.start(turn);
        self.lanes.add(lane, stream_id, pieces);
        if self.turns >= self.turns_max {
            self.end_after_turns(SocketClose::OLD, Duration::ZERO);
        }
    }

    /// Handles the last frame of an answer. The next request of the same lane can now start, even if the provider has not ended
    /// the exchange.
    pub(super) fn on_turn_told(&mut self) {
        self.timers.on_use(clock::instant());
        self.start_waiting();
    }

    /// Handles the end of a request, and starts waiting requests. `is_told` says whether the client has received the last frame
    /// of an answer.
    pub(super) fn on_turn_ended(&mut self, is_told: bool, stream_id: Option<&str>) {
        self.timers.on_use(clock::instant());
        if !is_told {
            let message = "The service failed. Send the request again.";
            self.send_error(stream_id, &SocketError::new(500, "internal", message));
        }
        self.start_waiting();
    }

    /// Starts the waiting requests that can be started now.
    fn start_waiting(&mut self) {
        while self.pending.is_none()
            && let Some(turn) = self.lanes.take_ready()
        {
            self.start(turn);
        }
    }

    /// Ends the socket as soon as its running requests have ended and the time `spread` has passed. Refuses the waiting requests.
    pub(super) fn end_after_turns(&mut self, close: SocketClose, spread: Duration) {
        if self.pending.is_some() {
            return;
        }
        let from = clock::instant() + spread;
        self.pending = Some(PendingClose { close, from });
        while let Some(turn) = self.lanes.take_waiting() {
            self.refuse_late(turn.stream_id.as_deref(), close.end);
        }
    }

    /// Refuses a request on a socket that is about to end.
    fn refuse_late(&mut self, stream_id: Option<&str>, end: SocketEnd) {
        let (code, error) = match end {
            SocketEnd::Drain if self.lanes.has_told_all() => {
                // The close frame is sent at once and answers the message. Agents then open a new socket without reporting an
                // error to their users.
                let now = clock::instant();
                self.pending = self.pending.map(|pending| PendingClose { from: now, ..pending });
                return self.count_refused("stopping");
            }
            SocketEnd::Drain => {
                let message = "The service is being restarted. Send the request again on a new socket.";
                ("stopping", SocketError::new(503, "stopping", message).retry_after(1))
            }
            SocketEnd::Key => {
                let message = "The API key of this socket is no longer valid. Open a new socket with a valid key.";
                ("invalid_api_key", SocketError::new(401, "invalid_api_key", message))
            }
            SocketEnd::Client
            | SocketEnd::Idle
            | SocketEnd::Lifetime
            | SocketEnd::Protocol
            | SocketEnd::Slow
            | SocketEnd::Late => {
                let message =
                    "The socket has reached its maximum age or number of requests. Send the request on a new socket.";
                let code = "websocket_connection_limit_reached";
                (code, SocketError::new(400, code, message))
            }
        };
        self.refuse(stream_id, code, &error);
    }

    fn refuse_steering(&mut self, frame: &ClientFrame) {
        let stream_id = frame.stream_id().ok().flatten();
        let mut out = BytesMut::new();
        write_event(&mut out, STEERING_FAILED.as_bytes(), stream_id.as_deref());
        self.stream.queue(out.freeze());
        self.count_refused("steering_not_supported");
    }

    /// Answers a message with an error and starts no request. `code` is the error's code, for the metrics.
    pub(super) fn refuse(&mut self, stream_id: Option<&str>, code: &'static str, error: &SocketError) {
        self.count_refused(code);
        self.send_error(stream_id, error);
    }

    fn count_refused(&self, code: &'static str) {
        let refused = &self.host.gateway.metrics().sockets.turns_refused;
        refused.with_labels([code.into()]).inc();
    }

    fn send_error(&mut self, stream_id: Option<&str>, error: &SocketError) {
        let mut out = BytesMut::new();
        error.write(&mut out, stream_id);
        self.stream.queue(out.freeze());
    }
}

/// Reads the members of a message. The work is charged to the key, as for the scan of a body. If a message is large, or has many
/// values or escapes, it is read on a thread of low priority. The same applies to bodies.
///
/// # Errors
/// [`Refusal::BodyWorkLimited`] if too many large bodies and messages of the key wait.
async fn read_frame(host: &TurnHost, text: Bytes) -> Result<ClientFrame, Refusal> {
    if text.len() <= FREE_BYTES_MAX {
        return Ok(ClientFrame::read(text));
    }
    let work = host.gateway.limits.bodies.work(host.handshake.digest);
    if work.can_run_now() && read_body::can_begin_at_once(&text) {
        let begin = || ClientFrame::read_in_steps(text.clone(), AT_ONCE_TOKENS_MAX, || false);
        if let Some(frame) = work.run_charged(begin) {
            return Ok(frame);
        }
    }
    let read = move || ClientFrame::read_in_steps(text, AT_ONCE_TOKENS_MAX, yield_processor);
    // Boxed: otherwise the future of every socket would reserve memory for this one.
    let frame = Box::pin(work.run_in_turn(read)).await?;
    // This error cannot occur, because the steps are never stopped.
    frame.ok_or(Refusal::Internal)
}

/// Lets another thread run if a thread of higher priority is ready. The scan of a body does the same between two steps. Always
/// returns true, which means that the next step follows.
fn yield_processor() -> bool {
    std::thread::yield_now();
    true
}

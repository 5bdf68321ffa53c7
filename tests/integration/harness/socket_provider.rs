//! A provider in this process that serves Responses by POST and over WebSocket at one address. A script says how it answers each
//! request, the same for both ways.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use serde_json::{Value as Json, json};
use tungstenite::error::Error;
use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{Message, Role, WebSocket, WebSocketConfig};
use weir::parts::websocket::accept_key;

use super::answer::Answer;
use super::provider::{Recorded, RecordingProvider, Welcome};
use super::steps::Steps;
use super::wait::DEADLINE;
use super::websocket::is_terminal;

/// How long one look for new frames takes at most.
const LOOK: Duration = Duration::from_millis(5);
const JSON: (&str, &str) = ("content-type", "application/json");

/// The way by which a request reached the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    Post,
    /// The WebSocket with this number: they are counted from 0.
    Line(usize),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Counted from 1, over all ways.
    pub(crate) number: usize,
    pub(crate) way: Way,
    /// The `authorization` of the POST or of the WebSocket's handshake.
    pub(crate) credential: String,
    /// The body of the POST, or the frame.
    pub(crate) body: Json,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// An event of the response. A POST's answer ends with the event that ends its response.
    Event(Json),
    /// An error with this status and error object: a frame, the whole answer to a POST, or an event in the middle of that.
    Error(u16, Json),
    /// Waits for this step. Meanwhile a WebSocket is read.
    Wait(usize),
    /// The same, without a look at what the peer sends.
    WaitDeaf(usize),
    /// A ping, without waiting for its pong. Not by POST.
    Ping,
    /// Waits for so many pongs on this WebSocket. Not by POST.
    Pongs(usize),
    /// A close frame with this code, and the end of the connection. By POST the connection ends.
    Close(u16),
    /// The end of the connection.
    Cut,
    /// Nothing more, until the peer leaves.
    Silence,
}

type Script = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;
type Door = dyn Fn(&Recorded) -> Option<u16> + Send + Sync;

/// The running provider.
pub(crate) struct SocketProvider {
    provider: RecordingProvider,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    door: Box<Door>,
    steps: Steps,
    asked: Mutex<Vec<Asked>>,
    /// The frames that are no requests.
    others: Mutex<Vec<Json>>,
    /// The codes of the close frames that came.
    closes: Mutex<Vec<Option<u16>>>,
    lines: AtomicUsize,
    open: AtomicUsize,
    pongs: AtomicUsize,
    stopping: AtomicBool,
}

impl SocketProvider {
    /// Plays a script, whose waits are for these steps.
    pub(crate) fn start(steps: &Steps, script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> SocketProvider {
        SocketProvider::start_with(None, steps, |_| None, script)
    }

    /// The same by POST only: each handshake is refused with this status.
    pub(crate) fn refusing(
        status: u16,
        steps: &Steps,
        script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> SocketProvider {
        let door = move |head: &Recorded| (head.method == "GET").then_some(status);
        SocketProvider::start_with(None, steps, door, script)
    }

    /// With TLS (or not), and the status with which `door` refuses a request by its head: a handshake, or a POST.
    pub(crate) fn start_with(
        tls: Option<Arc<ServerConfig>>,
        steps: &Steps,
        door: impl Fn(&Recorded) -> Option<u16> + Send + Sync + 'static,
        script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> SocketProvider {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            door: Box::new(door),
            steps: steps.clone(),
            asked: Mutex::default(),
            others: Mutex::default(),
            closes: Mutex::default(),
            lines: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            pongs: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let provider = RecordingProvider::start_with(
            tls,
            |_| Welcome::Serve,
            move |request, answer| serving.serve(request, answer),
        );
        SocketProvider { provider, shared }
    }

    /// The base URL for a provider override.
    pub(crate) fn base_url(&self) -> String {
        self.provider.base_url()
    }

    /// The listener, which records all heads.
    pub(crate) fn http(&self) -> &RecordingProvider {
        &self.provider
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The number of requests so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.asked.lock().unwrap().len()
    }

    /// The ways of the requests so far.
    pub(crate) fn ways(&self) -> Vec<Way> {
        self.asked().iter().map(|asked| asked.way).collect()
    }

    /// The handshakes so far, with those that were refused.
    pub(crate) fn handshakes(&self) -> Vec<Recorded> {
        let mut requests = self.provider.requests();
        requests.retain(|request| request.method == "GET");
        requests
    }

    /// The frames so far that are no requests.
    pub(crate) fn other_frames(&self) -> Vec<Json> {
        self.shared.others.lock().unwrap().clone()
    }

    /// The codes of the close frames so far.
    pub(crate) fn closes(&self) -> Vec<Option<u16>> {
        self.shared.closes.lock().unwrap().clone()
    }

    /// The pongs so far, on all WebSockets.
    pub(crate) fn pongs(&self) -> usize {
        self.shared.pongs.load(Ordering::SeqCst)
    }

    /// The number of WebSockets that are open now.
    pub(crate) fn open_lines(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Drop for SocketProvider {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    fn serve(&self, request: &Recorded, answer: &mut Answer<'_>) {
        if let Some(status) = (self.door)(request) {
            let error = json!({"error": {"message": "Not here.", "type": "invalid_request_error", "param": null,
                "code": "refused_at_the_door"}});
            return answer.full(status, &[JSON], error.to_string().as_bytes());
        }
        let credential = request.header("authorization").unwrap_or_default();
        if request.method == "GET" {
            self.serve_line(request, credential, answer);
        } else {
            let asked = self.ask(Way::Post, credential, &request.body);
            self.answer_post(&asked, answer);
        }
    }

    /// Records a request.
    fn ask(&self, way: Way, credential: &str, text: &[u8]) -> Asked {
        let body = serde_json::from_slice(text).unwrap_or_default();
        let mut all = self.asked.lock().unwrap();
        let asked = Asked {
            number: all.len() + 1,
            way,
            credential: credential.to_owned(),
            body,
        };
        all.push(asked.clone());
        asked
    }

    fn answer_post(&self, asked: &Asked, answer: &mut Answer<'_>) {
        let acts = (self.script)(asked);
        if let Some(Act::Error(status, error)) = acts.first() {
            let body = json!({ "error": error });
            return answer.full(*status, &[JSON], body.to_string().as_bytes());
        }
        if asked.body["stream"] == true {
            return self.stream(acts, answer);
        }
        let end = acts.iter().find_map(|act| match act {
            Act::Event(event) if is_terminal(event) => Some(event["response"].to_string()),
            _ => None,
        });
        match end {
            Some(response) => answer.json(&response),
            None => answer.cut(),
        }
    }

    fn stream(&self, acts: Vec<Act>, answer: &mut Answer<'_>) {
        let mut has_begun = false;
        for act in acts {
            let event = match act {
                Act::Event(event) => event,
                Act::Error(_, error) => json!({"type": "error", "error": error}),
                Act::Wait(step) | Act::WaitDeaf(step) => match self.steps.wait(step) {
                    true => continue,
                    false => return answer.cut(),
                },
                Act::Ping | Act::Pongs(_) => continue,
                Act::Close(_) | Act::Cut => return answer.cut(),
                Act::Silence => {
                    answer.wait_peer_left(DEADLINE);
                    return;
                }
            };
            if !has_begun {
                answer.sse();
                has_begun = true;
            }
            let name = event["type"].as_str().unwrap_or_default();
            answer.chunk(format!("event: {name}\ndata: {event}\n\n"));
            if is_terminal(&event) {
                return answer.end();
            }
        }
        answer.cut();
    }

    fn serve_line(&self, request: &Recorded, credential: &str, answer: &mut Answer<'_>) {
        let Some(accept) = accept_key(request.header("sec-websocket-key").unwrap_or_default()) else {
            return answer.full(400, &[JSON], b"{}");
        };
        let number = self.lines.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        answer.raw(head.as_bytes());
        let (wire, socket) = answer.connection();
        let _ = socket.set_read_timeout(Some(LOOK));
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let mut line = Line {
            shared: self,
            number,
            credential,
            frames: WebSocket::from_raw_socket(wire, Role::Server, Some(config)),
            waiting: VecDeque::new(),
            pings: 0,
            pongs: 0,
        };
        line.run();
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// A WebSocket. Its methods return false once it has ended.
struct Line<'s, S> {
    shared: &'s Shared,
    number: usize,
    credential: &'s str,
    frames: WebSocket<S>,
    /// The texts that came during an answer.
    waiting: VecDeque<String>,
    pings: usize,
    pongs: usize,
}

impl<S: Read + Write> Line<'_, S> {
    fn run(&mut self) {
        let mut is_open = true;
        while is_open {
            is_open = match self.waiting.pop_front() {
                Some(text) => self.on_text(&text),
                None => self.look(),
            };
        }
    }

    fn on_text(&mut self, text: &str) -> bool {
        let body: Json = serde_json::from_str(text).unwrap_or_default();
        if body["type"] != "response.create" {
            self.shared.others.lock().unwrap().push(body);
            return true;
        }
        let asked = self
            .shared
            .ask(Way::Line(self.number), self.credential, text.as_bytes());
        let acts = (self.shared.script)(&asked);
        acts.into_iter().all(|act| self.play(act))
    }

    fn play(&mut self, act: Act) -> bool {
        match act {
            Act::Event(event) => self.send(Message::text(event.to_string())),
            Act::Error(status, error) => {
                let frame = json!({"type": "error", "status": status, "error": error});
                self.send(Message::text(frame.to_string()))
            }
            Act::Wait(step) => self.look_until(|line| line.shared.steps.permitted() >= step),
            Act::WaitDeaf(step) => self.shared.steps.wait(step),
            Act::Ping => {
                self.pings += 1;
                let payload = self.pings.to_string().into_bytes();
                self.send(Message::Ping(payload.into()))
            }
            Act::Pongs(count) => self.look_until(|line| line.pongs >= count),
            Act::Close(code) => {
                let frame = CloseFrame {
                    code: CloseCode::from(code),
                    reason: "".into(),
                };
                // The peer may have left.
                let _ = self.frames.close(Some(frame));
                self.look_until(|_| false)
            }
            Act::Cut => false,
            Act::Silence => self.look_until(|_| false),
        }
    }

    fn send(&mut self, message: Message) -> bool {
        self.frames.send(message).is_ok()
    }

    /// Reads until a condition holds.
    fn look_until(&mut self, is_met: impl Fn(&Self) -> bool) -> bool {
        let until = Instant::now() + DEADLINE;
        while !is_met(&*self) {
            if Instant::now() > until || !self.look() {
                return false;
            }
        }
        true
    }

    /// Reads the next frame, if it comes within [`LOOK`]. Pings are answered.
    fn look(&mut self) -> bool {
        match self.frames.read() {
            Ok(Message::Text(text)) => self.waiting.push_back(text.as_str().to_owned()),
            Ok(Message::Pong(_)) => {
                self.pongs += 1;
                self.shared.pongs.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Message::Close(frame)) => {
                let code = frame.map(|frame| u16::from(frame.code));
                self.shared.closes.lock().unwrap().push(code);
            }
            Ok(Message::Ping(_)) => {}
            Ok(Message::Binary(_) | Message::Frame(_)) => return false,
            Err(Error::Io(error)) => {
                let is_silent = matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                );
                return is_silent && !self.shared.is_stopping();
            }
            Err(_) => return false,
        }
        true
    }
}

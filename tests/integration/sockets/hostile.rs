//! Clients that mean harm, on sockets: floods of handshakes, pings, fragments and empty messages, slow readers and writers, with few
//! open files. Everybody else is served meanwhile.

use std::time::{Duration, Instant};

use super::stage::{create, create_in};
use crate::harness::crowd::Crowd;
use crate::harness::load::Load;
use crate::harness::request::Upload;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds};
use crate::harness::websocket::{
    LAST, MIDDLE, Message, PING, TEXT, TEXT_BEGIN, WebSocket, frame, frame_head, handshake,
};
use crate::harness::{Client, Weir, WeirBuilder, wait_for, wait_until};

/// The most memory of the process, in bytes.
const MEMORY_MAX: usize = 256 << 20;
const OPEN_FILES_MAX: u32 = 600;
const LAST_PING: &[u8] = b"the last one";

/// A gateway under attack, and clients of other keys that must always be served.
struct Siege {
    weir: Weir,
    load: Load,
    key: String,
    _sample: SampleProvider,
}

impl Siege {
    #[track_caller]
    fn begin(build: impl FnOnce(WeirBuilder) -> WeirBuilder) -> Siege {
        let sample = SampleProvider::start();
        let builder = WeirBuilder::new().all_providers(&sample.base_url());
        let weir = build(builder).start();
        let (key, other) = (weir.key().text, weir.key().text);
        let load = Load::start(&weir, &[&other], 3);
        load.serve(3);
        Siege {
            weir,
            load,
            key,
            _sample: sample,
        }
    }

    fn open(&self) -> WebSocket {
        WebSocket::open(self.weir.gateway, &self.key)
    }

    /// Checks that the others are served now, and that one of them opens a socket.
    #[track_caller]
    fn serves_others(&self) {
        self.load.serve(6);
        assert_eq!(self.weir.ops_get("/livez").status, 200);
    }

    #[track_caller]
    fn end(mut self) {
        self.serves_others();
        assert_eq!(self.load.refused(), 0, "somebody else was refused");
        self.load.end();
        wait_until("the end of all sockets", || self.weir.figure("weir_sockets_open") == 0);
        wait_until("the end of all requests", || self.weir.account()["running"] == 0);
        let memory = self.weir.process().peak_memory();
        note(&format!("sockets under attack: {} MiB at most", memory >> 20));
        assert!(memory < MEMORY_MAX, "{memory} bytes");
        assert!(!self.weir.process().err().contains("Too many open files"));
    }
}

#[test]
fn handshakes_without_end_take_nothing_from_others() {
    let siege = Siege::begin(|builder| builder.open_files_max(OPEN_FILES_MAX).set("sockets.per_key_max", 8));
    let crowd = Crowd::new(siege.weir.gateway);
    let mut kept: Vec<Client> = Vec::new();
    for number in 0..rounds(400, 5000) {
        // Keys that are none, one key again and again, and handshakes that stop in the middle.
        let head = match number % 4 {
            0 => handshake(&format!("made-up-{number}")).head_bytes(Upload::Length),
            1 => handshake(&siege.key).head_bytes(Upload::Length),
            2 => handshake(&siege.key).head_bytes(Upload::Length)[..60].to_vec(),
            _ => {
                let mut bytes = handshake(&siege.key).head_bytes(Upload::Length);
                bytes.extend(frame(TEXT, b"{"));
                bytes
            }
        };
        let mut client = Client::over(crowd.connect(2));
        client.write(&head);
        kept.push(client);
        if kept.len() > 100 {
            kept.drain(..50);
        }
        if number % 100 == 0 {
            siege.serves_others();
        }
    }
    drop(kept);
    siege.end();
}

#[test]
fn sockets_of_one_key_leave_files_and_places_to_others() {
    let siege = Siege::begin(|builder| builder.open_files_max(OPEN_FILES_MAX).set("sockets.per_key_max", 8));
    let crowd = Crowd::new(siege.weir.gateway);
    let mut sockets = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        match WebSocket::try_open(Client::over(crowd.connect(2)), &handshake(&siege.key)) {
            Ok(socket) => sockets.push(socket),
            Err(answer) => {
                assert_eq!(answer.status, 426);
                refused += 1;
            }
        }
    }
    assert_eq!((sockets.len(), refused), (8, 92));
    for socket in &mut sockets {
        socket.ask(&create("hi")).completed();
    }
    siege.serves_others();
    drop(sockets);
    siege.end();
}

#[test]
fn pings_without_end_are_answered_or_ended_and_nothing_is_stored_up() {
    let mut siege = Siege::begin(|builder| builder.set("gateway.write_seconds", 2));
    let before = siege.weir.process().memory();
    let flood = frame(PING, &[b'p'; 125]).repeat(2000);
    let (gateway, key) = (siege.weir.gateway, siege.key.clone());
    // It reads nothing: its pongs pile up in front of it, until weir reads no more of it, or it is ended as too slow.
    let attacker = std::thread::spawn(move || {
        let mut socket = WebSocket::open(gateway, &key);
        for _ in 0..rounds(40, 200) {
            socket.write(&flood);
        }
        socket
    });
    siege.serves_others();
    let grown = siege.weir.process().memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes are stored up");
    let mut socket = attacker.join().unwrap();
    socket.send_frame(PING, LAST_PING);
    loop {
        match socket.read() {
            Message::Pong(payload) if payload == LAST_PING => break,
            Message::Pong(_) | Message::Ping(_) => {}
            Message::Close(..) | Message::End => break,
            Message::Text(text) => panic!("{text}"),
        }
    }
    drop(socket);
    siege.end();
}

#[test]
fn messages_of_nothing_and_fragments_without_end_are_refused() {
    let siege = Siege::begin(|builder| builder);
    // Empty messages: each is no request.
    let mut empty = siege.open();
    let count = rounds(500, 5000);
    empty.write(&frame(TEXT, b"").repeat(count));
    for _ in 0..count {
        let turn = empty.turn();
        assert_eq!(turn.last()["type"], "error", "{}", turn.last());
    }
    siege.serves_others();
    // Empty fragments: there are only so many in a message.
    for _ in 0..rounds(10, 100) {
        let mut socket = siege.open();
        socket.send_frame(TEXT_BEGIN, b"");
        socket.write(&frame(MIDDLE, b"").repeat(5000));
        socket.send_frame(LAST, b"");
        assert!(matches!(socket.close_code(), Some(1009) | None));
    }
    siege.serves_others();
    // Announced, and never sent: nothing is stored for it.
    let mut sockets: Vec<WebSocket> = (0..20).map(|_| siege.open()).collect();
    for socket in &mut sockets {
        socket.write(&frame_head(TEXT, 30 << 20));
    }
    siege.serves_others();
    wait_until("no body to be stored", || {
        siege.weir.figure("weir_body_bytes_buffered") == 0
    });
    drop((empty, sockets));
    siege.end();
}

#[test]
fn writers_that_trickle_are_ended() {
    let siege = Siege::begin(|builder| builder.set("gateway.body_read_seconds", 2));
    let bytes = frame(TEXT, create(&"x".repeat(10_000)).to_string().as_bytes());
    let mut sockets: Vec<(WebSocket, usize)> = (0..20).map(|_| (siege.open(), 0)).collect();
    // Far slower than the minimum speed, and never silent.
    let began = Instant::now();
    let line = "weir_sockets_total{end=\"late\"} 20\n";
    wait_until("the end of those that trickle", || {
        for (socket, sent) in &mut sockets {
            socket.write(&bytes[*sent..=*sent]);
            *sent += 1;
        }
        let until = Instant::now() + Duration::from_millis(50);
        wait_until("the next byte to be due", || Instant::now() > until);
        siege.weir.metrics().contains(line)
    });
    note(&format!(
        "sockets: trickling writers were ended after {:?}",
        began.elapsed()
    ));
    drop(sockets);
    siege.end();
}

#[test]
fn readers_that_do_not_read_are_ended_and_what_they_asked_for_is_not_stored_up() {
    let mut siege = Siege::begin(|builder| builder.set("gateway.write_seconds", 2));
    let before = siege.weir.process().memory();
    let mut sockets: Vec<WebSocket> = (0..3).map(|_| siege.open()).collect();
    for socket in &mut sockets {
        for lane in 0..3 {
            let prompt = "Tell me. [[sample: deltas=64 delta_bytes=65536 usage=zero]]";
            socket.send(&create_in(&format!("lane-{lane}"), prompt));
        }
    }
    siege.serves_others();
    let grown = siege.weir.process().memory().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes are stored up");
    let line = "weir_sockets_total{end=\"slow\"} 3\n";
    wait_until("the end of those that do not read", || {
        siege.weir.metrics().contains(line)
    });
    drop(sockets);
    siege.end();
}

#[test]
fn clients_that_ask_and_reset_at_once_leave_nothing_behind() {
    // Connections to the provider that are kept for the next request are not what is looked for.
    let mut siege = Siege::begin(|builder| builder.set("upstream.pool_size", 16));
    let files = siege.weir.process().open_files();
    for number in 0..rounds(100, 2000) {
        // Answers that are read to their end may keep a place of the key for a moment.
        let mut socket = wait_for("a place for a socket", || {
            WebSocket::try_open(siege.weir.connect(), &handshake(&siege.key)).ok()
        });
        for lane in 0..4 {
            let prompt = "Tell me. [[sample: deltas=50 gap_ms=2]]";
            socket.send(&create_in(&format!("lane-{lane}"), prompt));
        }
        if number % 2 == 0 {
            socket.event();
        }
        socket.reset();
        if number % 25 == 0 {
            siege.serves_others();
        }
    }
    wait_until("the end of all sockets", || siege.weir.figure("weir_sockets_open") == 0);
    wait_until("the end of their requests", || {
        siege.weir.figure("weir_requests_in_flight") <= 3
    });
    wait_until("the files to be closed", || {
        siege.weir.process().open_files() <= files + 40
    });
    siege.end();
}

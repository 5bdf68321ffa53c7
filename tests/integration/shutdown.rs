//! SIGTERM: what runs is finished, nothing new is taken, and the process ends soon after.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::client::Piece;
use crate::harness::recordings::events;
use crate::harness::request::{Upload, Wire};
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

#[test]
fn sigterm_lets_a_running_stream_finish_and_takes_no_new_connection() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        let events = events(Wire::Messages);
        answer.chunk(events[0]);
        gate.wait(1);
        events[1..].iter().for_each(|event| answer.chunk(event));
        answer.end();
    });
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let Piece::Data(first) = client.piece(&mut head) else {
        panic!("no first event")
    };
    let address = weir.gateway;
    weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    assert!(weir.process().ended().is_none(), "it ended under a running stream");
    steps.permit();
    let rest = client.rest(head);
    let finished = Instant::now();
    assert!(rest.complete);
    assert_eq!(
        format!("{}{}", String::from_utf8_lossy(&first), rest.text()),
        events(Wire::Messages).concat()
    );
    let status = weir.process().wait_ended();
    assert!(status.success(), "{status}");
    assert!(
        finished.elapsed() < Duration::from_secs(5),
        "it ended {:?} after its last stream",
        finished.elapsed()
    );
    assert_eq!(
        weir.access_lines().len(),
        1,
        "the line of the last stream is written before the end"
    );
}

#[test]
fn sigterm_without_work_ends_at_once_although_idle_connections_are_open() {
    let provider = RecordingProvider::answering("{}");
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut idle = weir.connect();
    assert_eq!(idle.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    weir.process().signal("TERM");
    let asked = Instant::now();
    assert!(weir.process().wait_ended().success());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn a_stream_that_outlives_the_drain_time_is_cut_and_the_process_ends() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        answer.chunk(events(Wire::Messages)[0]);
        answer.wait_peer_left(Duration::from_secs(60));
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.drain_seconds", 1)
        .start();
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = client.head_to("POST");
    weir.process().signal("TERM");
    let asked = Instant::now();
    let rest = client.rest(head);
    assert!(
        !rest.complete || rest.text().contains("event: error"),
        "looks like success: {}",
        rest.text()
    );
    weir.process().wait_ended();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[test]
fn sigterm_twice_or_sigint_ends_it_too() {
    let mut weir = Weir::start("http://127.0.0.1:9");
    weir.process().signal("INT");
    weir.process().wait_ended();
}

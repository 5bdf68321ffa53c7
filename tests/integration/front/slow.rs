//! Who says nothing, or too little: closed within the limits, with the reason counted. More of them: `hostile/slow.toml`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::limits::short;
use super::{closed, wait_closed};
use crate::harness::Client;
use crate::harness::h2_frames::H2Frames;
use crate::harness::h2c::Requests;
use crate::harness::request::{Upload, Wire};
use crate::harness::wait::{DEADLINE, wait_for, wait_until};

#[test]
fn silence_and_half_heads_are_not_waited_for() {
    let weir = short("http://127.0.0.1:9").start();
    for (listener, address) in [("gateway", weir.gateway), ("stability", weir.stability)] {
        assert!(Client::connect(address).closed_within(DEADLINE), "a silent connection");
        assert_eq!(closed(&weir, listener, "first_byte_timeout"), 1);
        for half in [
            &b"GET / HT"[..],
            b"GET / HTTP/1.1\r\nhost: x\r\n",
            b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM",
        ] {
            let mut client = Client::connect(address);
            client.write(half);
            assert_eq!(client.response_to("GET").status, 408);
            assert!(client.closed_within(DEADLINE));
        }
        assert_eq!(closed(&weir, listener, "head_timeout"), 4);
        let mut client = Client::connect(address);
        client.write(b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
        assert_eq!(client.response_to("GET").status, 400);
        assert_eq!(closed(&weir, listener, "host_invalid"), 1);
    }
}

#[test]
fn a_head_that_is_trickled_is_not_waited_for_longer_and_a_large_one_not_read_to_its_end() {
    let weir = short("http://127.0.0.1:9").start();
    let mut trickling = TcpStream::connect(weir.gateway).unwrap();
    let mut bytes = b"GET / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'x'));
    wait_until("the end of a trickled head", || {
        trickling.write_all(&[*bytes.next().unwrap()]).is_err() || closed(&weir, "gateway", "head_timeout") == 1
    });
    let mut client = weir.connect();
    client.write(b"GET / HTTP/1.1\r\nx: ");
    client.write(&vec![b'x'; 1 << 20]);
    wait_closed(&weir, "gateway", "headers_too_large", 1);
}

#[test]
fn an_http2_connection_without_a_request_is_closed() {
    let weir = short("http://127.0.0.1:9").start();
    // It ends, or reading does with the test's own limit.
    H2Frames::connect(weir.gateway).frames_to_the_end();
}

#[test]
fn a_body_that_stops_or_trickles_is_408_over_each_version() {
    let weir = short("http://127.0.0.1:9")
        .set("gateway.bytes_per_second_min", 10_000)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, &"long ".repeat(20_000));
    for upload in [Upload::Length, Upload::Chunked(50_000)] {
        let body = request.body_bytes(upload);
        let mut client = weir.connect();
        client.write(&request.head_bytes(upload));
        client.write(&body[..100]);
        assert_eq!(client.response_to("POST").status, 408, "{upload:?}");
        assert!(client.closed_within(DEADLINE));
        // A byte every few milliseconds is not enough either.
        let mut stream = TcpStream::connect(weir.gateway).unwrap();
        stream.write_all(&request.head_bytes(upload)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        let mut bytes = body.iter();
        let answer = wait_for("the refusal of a trickled body", || {
            let _ = stream.write_all(&[*bytes.next().unwrap()]);
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).ok().map(|()| answer)
        });
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    let mut requests = Requests::connect(weir.gateway);
    assert_eq!(requests.send_without_end(&request), Some(408));
}

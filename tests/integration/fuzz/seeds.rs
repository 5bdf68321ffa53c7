//! What fuzzing begins with: the tests' own data, and what coverage-guided runs have found worth keeping.

mod translation;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use weir::parts::frame::{HEAD, HEADER, seal};
use weir::parts::websocket::{ControlOpcode, mask_in_place, write_close, write_control, write_text_header};
use weir::parts::{reread, shipped};

use super::INPUT_BYTES_MAX;
use crate::harness::MESSAGES_MODEL;
use crate::harness::client::find;
use crate::harness::packed::{CODINGS, packed};
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::ALL_WIRES;
use crate::harness::tools::repository;
use crate::hostile::{bodies, smuggling};

/// The seeds of an entry point, none too long.
pub(super) fn of(entry: &str) -> Vec<Vec<u8>> {
    let mut seeds = match entry {
        "request_scan" | "sse" | "json_array" | "unary" | "rules" => [answers(), requests()].concat(),
        "request_head" => smuggling::requests(),
        "chunked_body" => smuggling::requests()
            .iter()
            .map(|request| behind_the_head(request))
            .collect(),
        "proxy_header" => proxy_headers(),
        "content_coding" => coded(),
        "websocket" => connections(),
        "journal_frames" => segments(),
        "journal_records" => records(),
        "provider_file" => shipped().into_iter().map(|file| file.text.into_bytes()).collect(),
        "price_list" => prices(),
        "translated_request" => [requests(), translation::requests()].concat(),
        "messages_answer" => translation::answers("messages"),
        "responses_answer" => translation::answers("responses"),
        "gemini_answer" => translation::answers("gemini"),
        "chat_answer" => translation::answers("chat"),
        "reasoning_carrier" => translation::states(),
        other => panic!("no seeds for {other}"),
    };
    seeds.extend(kept(entry));
    seeds.retain(|seed| seed.len() <= INPUT_BYTES_MAX);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// One input each line, in base64.
fn kept(entry: &str) -> Vec<Vec<u8>> {
    let path = repository().join("tests/fuzz/corpus").join(entry);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    text.lines()
        .map(|line| {
            STANDARD
                .decode(line)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

fn answers() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = ALL_WIRES
        .into_iter()
        .flat_map(|wire| [events(wire).concat().into_bytes(), unary(wire).as_bytes().to_vec()])
        .collect();
    all.push(GEMINI_ARRAY.concat().into_bytes());
    all
}

fn requests() -> Vec<Vec<u8>> {
    let mut all = bodies::small();
    for wire in ALL_WIRES {
        all.push(wire.request("k", "h\u{f6}llo \"x\"").body);
        all.push(wire.streaming("k", "hi").body);
    }
    // State at a provider, maps of the user's own, and half a surrogate pair.
    all.extend([
        r#"{"container":{"id":"c","skills":[{"skill_id":"skill_x"}]},"messages":[{"content":[{"source":{"file_id":"\ud83d"},"input":{"file_id":"x"}}]}]}"#,
        r#"{"store":true,"input":[{"type":"reasoning","id":"r","summary":[{"text":"\ud83d"}]},{"id":"x"}],"tools":[{"container":{"file_ids":["f"]},"headers":{"container":"c"}}],"prompt":{"id":"p","variables":{"a":{"file_id":"f"}}}}"#,
        r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/x"},"partMetadata":{"fileUri":"files/x"}}]}],"cached_content":"\u0063"}"#,
    ].map(|body| body.as_bytes().to_vec()));
    all
}

fn behind_the_head(request: &[u8]) -> Vec<u8> {
    let head = find(request, b"\r\n\r\n").map_or(0, |at| at + 4);
    request[head..].to_vec()
}

fn proxy_headers() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "PROXY TCP4 192.0.2.1 198.51.100.1 40000 443\r\n",
        "PROXY TCP6 2001:db8::1 ::1 0 65535\r\n",
        "PROXY UNKNOWN\r\n",
        "PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    for (command, family, fields) in [
        (0x21, 0x11, 12 + 5),
        (0x21, 0x21, 36),
        (0x20, 0x00, 0),
        (0x21, 0x31, 216),
        (0x21, 0x00, 7),
    ] {
        let length = u16::to_be_bytes(fields);
        let head = [command, family, length[0], length[1]];
        all.push([b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &head, &vec![7; usize::from(fields)]].concat());
    }
    all
}

fn coded() -> Vec<Vec<u8>> {
    let texts = [Vec::new(), b"{}".to_vec(), answers().concat(), vec![b' '; 40_000]];
    let mut all = Vec::new();
    for (number, coding) in CODINGS.iter().enumerate() {
        for text in &texts {
            let first = u8::try_from(number).unwrap();
            let whole = packed(coding, text);
            all.push([&[first], &whole[..]].concat());
            all.push([&[first], &whole[..], &whole].concat());
        }
    }
    all
}

/// Frames as a client and as a server send them. The first byte tells who receives them.
fn connections() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Of a payload whose mask is zero, mutations change the text as they mean to.
    for (receiver, mask) in [(0_u8, Some([0; 4])), (0, Some([0x37, 0xFA, 0x21, 0x3D])), (1, None)] {
        let mut every = BytesMut::from(&[receiver][..]);
        for text in ["", "hello", "\u{E9}\u{20AC}\u{1D11E}", &"x".repeat(200)] {
            let mut message = BytesMut::from(&[receiver][..]);
            put_frame(&mut message, 0x81, text.as_bytes(), mask);
            every.extend_from_slice(&message[1..]);
            all.push(message.to_vec());
            // In three fragments, with a ping in between. One of the texts is cut within a character.
            let (first, last) = text.as_bytes().split_at(text.len() / 2);
            put_frame(&mut every, 0x01, first, mask);
            write_control(&mut every, ControlOpcode::Ping, b"ping", mask);
            put_frame(&mut every, 0x00, b"", mask);
            put_frame(&mut every, 0x80, last, mask);
        }
        put_frame(&mut every, 0x82, b"\xFF\0\xC0", mask);
        write_control(&mut every, ControlOpcode::Pong, b"", mask);
        write_close(&mut every, 1000, "\u{E9}nd", mask);
        all.push(every.to_vec());
    }
    all
}

/// Writes a frame of a message. `first` is its first byte.
fn put_frame(out: &mut BytesMut, first: u8, payload: &[u8], mask: Option<[u8; 4]>) {
    let begin = out.len();
    write_text_header(out, payload.len() as u64, mask);
    out[begin] = first;
    let begin = out.len();
    out.extend_from_slice(payload);
    mask_in_place(&mut out[begin..], mask.unwrap_or_default(), 0);
}

/// Segments as the journal writes them, with payloads that are any JSON.
fn segments() -> Vec<Vec<u8>> {
    let mut segment = vec![0; HEADER];
    for number in 0..12_usize {
        let record = serde_json::json!({ "step": number, "text": "x".repeat(number * 40) });
        let at = segment.len();
        segment.extend_from_slice(&[0; HEAD]);
        segment.extend_from_slice(record.to_string().as_bytes());
        seal(&mut segment[at..], 7, at as u64).unwrap();
    }
    let cut = segment[..segment.len() - 10].to_vec();
    let followed = [&segment[..], &[0; 64]].concat();
    vec![segment, cut, followed]
}

/// Records of each kind, as the journal writes them. A number below 127 is a byte that is one more.
fn records() -> Vec<Vec<u8>> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap() + 1], text.as_bytes()].concat();
    let key = text("key_0123456789abcdef");
    let lease = [text("node_0123456789abcdef"), vec![8]].concat();
    let texts = |texts: &[&str]| texts.iter().flat_map(|one| text(one)).collect::<Vec<u8>>();
    // Status, usage, source, cost, latency; then a part of it, and the time to the first content.
    let consumed = [200, 2, 18, 6, 3, 1, 15, 5];
    let part = [
        &[2, 4, 4][..],
        &texts(&["m"]),
        &[2, 6, 1, 9],
        &texts(&["n", "v"]),
        &[10],
    ]
    .concat();
    let names = ["messages", "m", "m", "p", "ok", "v"];
    let row = [
        // All that a row may have.
        &[0xFF, 64][..],
        &[0xE4, 8, 0xE4, 8],
        &texts(&["req_1", "acme"]),
        &key,
        &texts(&names),
        &consumed,
        &[7],
        &texts(&["flex", "fast", "us"]),
        &part,
        &[99, 2, 2],
        &texts(&["team=x", "responses->chat"]),
        &[2],
        &texts(&["dropped n"]),
        &lease,
    ]
    .concat();
    let checkpoint = [&[25][..], &texts(&["req_1", "p"]), &consumed, &[2], &part].concat();
    let step = br#"{"kind":"step","account":"acme","step":{"seq":1,"change":{"op":"credit","amount":7}}}"#;
    let gone = br#"{"kind":"key_gone","id":"key_0123456789abcdef","revision":3}"#;
    let release = [&[2][..], &texts(&["acme", "req_1"]), &key, &[1, 5, 1]].concat();
    let all = vec![
        [&[2, 1][..], &row].concat(),
        [&[2, 2][..], &checkpoint, &checkpoint].concat(),
        [&[2, 3, 2][..], &row].concat(),
        [&[2, 4][..], &release].concat(),
        [&[2, 5][..], step].concat(),
        [&[2, 6][..], gone].concat(),
    ];
    for record in &all {
        assert_eq!(reread(record).as_ref(), Some(record));
    }
    all
}

/// The shipped prices, an entry each, and all of a small list.
fn prices() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(repository().join("conf/prices.toml")).unwrap();
    let (head, rest) = text.split_once("\n[[price]]").unwrap();
    let version = head.lines().find(|line| line.starts_with("version")).unwrap();
    rest.split("\n[[price]]")
        .map(|entry| format!("{version}\n[[price]]{entry}").into_bytes())
        .chain([format!("{version}\nmodel = \"{MESSAGES_MODEL}\"\n").into_bytes()])
        .collect()
}

//! Tests of `sse`.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default, PartialEq, Eq)]
struct Events {
    open: Vec<u8>,
    done: Vec<(String, String)>,
}

impl EventSink for Events {
    fn on_data(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    fn on_event_end(&mut self, name: &[u8]) {
        let data = std::mem::take(&mut self.open);
        self.done.push((
            String::from_utf8_lossy(name).into_owned(),
            String::from_utf8_lossy(&data).into_owned(),
        ));
    }
}

fn push(framer: &mut SseFramer, mut bytes: &[u8], events: &mut Events) {
    while !bytes.is_empty() {
        let used = framer.push_event(bytes, events);
        bytes = &bytes[used..];
    }
}

fn framed(stream: &[u8], size: usize) -> (SseFramer, Events) {
    let (mut framer, mut events) = (SseFramer::new(), Events::default());
    for chunk in stream.chunks(size) {
        push(&mut framer, chunk, &mut events);
    }
    (framer, events)
}

fn events(stream: &str) -> Vec<(String, String)> {
    framed(stream.as_bytes(), usize::MAX).1.done
}

fn pair(name: &str, data: &str) -> (String, String) {
    (name.to_owned(), data.to_owned())
}

#[test]
fn all_line_ends_end_lines() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = "event: one~data: 1~data:2~~:comment~data~~event: none~~data:  x~id: 7~retry~~".replace('~', end);
        assert_eq!(
            events(&stream),
            [pair("one", "1\n2"), pair("", ""), pair("", " x")],
            "{end:?}"
        );
    }
}

#[test]
fn a_byte_order_mark_is_skipped_once() {
    assert_eq!(events("\u{feff}data: a\n\n\u{feff}data: b\n\n"), [pair("", "a")]);
    let (_, split) = framed("\u{feff}data: a\n\n".as_bytes(), 1);
    assert_eq!(split.done, [pair("", "a")]);
    assert_eq!(framed(b"\xEF\xBBdata: a\n\ndata: b\n\n", 1).1.done, [pair("", "b")]);
}

#[test]
fn unknown_and_overlong_fields_are_ignored() {
    assert_eq!(events("dat: a\ndatax: b\n data: c\nDATA: d\ndata : e\n\n"), []);
    let name = "n".repeat(NAME_BYTES_MAX);
    assert_eq!(events(&format!("event: {name}{name}\ndata: x\n\n")), [pair(&name, "x")]);
}

#[test]
fn an_unended_event_is_not_delivered() {
    let (framer, events) = framed(b"data: a\n\nevent: e\ndata: b\n", usize::MAX);
    assert_eq!(events.done.len(), 1);
    assert!(framer.has_open_data());
    assert_eq!(framer.open_name(), b"e");
}

#[test]
fn it_knows_where_an_event_can_be_appended() {
    for (stream, between) in [
        ("", true),
        ("\u{feff}", true),
        ("data: a\n\n", true),
        ("data: a\r\n\r\n", true),
        ("data: a\r\r", true),
        ("\n\n", true),
        ("data: a\n", false),
        ("data: a\r\n\r", true),
        ("data: a", false),
        ("d", false),
        (": c\n", false),
        (": c", false),
    ] {
        assert_eq!(
            framed(stream.as_bytes(), usize::MAX).0.is_between_events(),
            between,
            "{stream:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events(stream in "(data|event|:|\u{feff}|id| |a|\r|\n|\r\n|: ){0,60}", size in 1_usize..7) {
        let (whole, all) = framed(stream.as_bytes(), usize::MAX);
        let (split, parts) = framed(stream.as_bytes(), size);
        prop_assert_eq!(all, parts);
        prop_assert_eq!(whole.is_between_events(), split.is_between_events());
    }

    #[test]
    fn an_appended_event_is_always_delivered(stream in "(data|event|:|\u{feff}|id| |a|\r|\n|\r\n|: ){0,60}") {
        let (mut framer, mut events) = framed(stream.as_bytes(), usize::MAX);
        if !framer.is_between_events() {
            push(&mut framer, b"\n\n", &mut events);
        }
        prop_assert!(framer.is_between_events());
        push(&mut framer, b"event: error\ndata: x\n\n", &mut events);
        prop_assert_eq!(events.done.last(), Some(&pair("error", "x")));
    }
}

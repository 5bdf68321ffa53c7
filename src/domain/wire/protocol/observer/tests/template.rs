//! Events that are recognised by the one before say what they would have said when read.

use super::*;

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";

fn delta(text: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{}}}}}\n\n",
        serde_json::to_string(text).unwrap()
    )
}

fn template(observer: &Observer) -> &Template {
    let Frame::Sse { template, .. } = &observer.frame else {
        panic!("no stream");
    };
    template
}

#[test]
fn a_delta_is_recognised_after_the_second_one() {
    let mut observer = Observer::new(Protocol::Messages, Framing::Sse);
    observer.push(START.as_bytes());
    observer.push(delta("one").as_bytes());
    assert_eq!(
        template(&observer).split(delta("two").as_bytes()),
        None,
        "the first content is more than text"
    );
    observer.push(delta("two").as_bytes());
    let next = delta("three");
    assert_eq!(
        template(&observer).split(next.as_bytes()),
        Some((b"three".as_slice(), b"".as_slice()))
    );
    let before = observer.classes().clone();
    observer.push(next.as_bytes());
    assert_ne!(observer.classes(), &before, "and is counted");
}

#[test]
fn data_that_are_not_the_last_line_are_no_template() {
    let json = "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}";
    for event in [
        format!("data: {json}\nid: 1\n\n"),
        format!("data: {json}\nid: data: {json}\n\n"),
        format!("data:{json}\n\n"),
        format!("data: {json}\r\n\r\n"),
        format!("data: {json}\ndata: \n\n"),
    ] {
        let mut observer = Observer::new(Protocol::Messages, Framing::Sse);
        observer.push(delta("first").as_bytes());
        observer.push(event.as_bytes());
        observer.push(event.as_bytes());
        assert_eq!(template(&observer).split(event.as_bytes()), None, "{event:?}");
    }
}

fn event() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        3 => "[a-z ]{0,12}",
        1 => "[a-z\"\\\\\n é中]{0,6}",
    ];
    let same = |text: String| delta(&text);
    let other = prop::sample::select(vec![
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\",\"thinking\":\"b\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}} x\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}\n\n",
        "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\r\n\r\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\ndata: \"delta\":{\"text\":\"abc\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}\nid: 7\n\n",
        "data: {\"delta\":{\"text\":\"abc\"},\"type\":\"content_block_delta\"}\n\n",
        "event: content_block_delta\ndata: {\"delta\":{\"text\":\"abc\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ": a comment\n\n",
        "\n",
        "\r",
        "data: [DONE]\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ]);
    prop_oneof![
        6 => text.prop_map(same),
        2 => other.prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn recognised_events_say_what_they_say_when_read(events in prop::collection::vec(event(), 0..24), size in 1_usize..700, cut in 0_usize..40) {
        let stream = events.concat();
        let whole = stream.len() - cut.min(stream.len());
        let stream = &stream.as_bytes()[..whole];
        // An event that comes byte by byte is never recognised.
        let read = observe(Protocol::Messages, Framing::Sse, stream, 1);
        let recognised = [
            observe(Protocol::Messages, Framing::Sse, stream, size),
            observe(Protocol::Messages, Framing::Sse, stream, stream.len().max(1)),
        ];
        for other in recognised {
            prop_assert_eq!(other.observed(), read.observed());
            prop_assert_eq!(other.classes(), read.classes());
            prop_assert_eq!(other.first_content_seen(), read.first_content_seen());
            prop_assert_eq!(other.closing(), read.closing());
            prop_assert!(other.heap_bytes() <= HEAP_BYTES_MAX);
        }
    }
}

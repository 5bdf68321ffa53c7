//! Clients that let weir wait (`tests/hostile/slow.toml`): nobody is waited for beyond a limit.

use super::attacks::{read, try_all};
use crate::harness::request::Wire;
use crate::harness::{RecordingProvider, WeirBuilder};

/// The time limits of this test, in seconds.
const SHORT_SECONDS: i64 = 1;

/// A second, and then a byte for each of 10,000 that have to come within it.
const BYTES_PER_SECOND_MIN: i64 = 10_000;

#[test]
fn nobody_is_waited_for_beyond_a_limit() {
    // It answers without end, for those who do not take it.
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        let piece = format!("data: {{\"x\":\"{}\"}}\n\n", "x".repeat(60_000));
        while answer.is_open() {
            answer.chunk(&piece);
        }
    });
    let weir = [
        "connections.first_byte_seconds",
        "connections.head_seconds",
        "gateway.keepalive_seconds",
        "gateway.body_read_seconds",
        "gateway.write_seconds",
    ]
    .iter()
    .fold(WeirBuilder::new(), |builder, limit| builder.set(limit, SHORT_SECONDS))
    .set("gateway.bytes_per_second_min", BYTES_PER_SECOND_MIN)
    .set("upstream.client_gone_finish_max", 0)
    .all_providers(&provider.base_url())
    .start();
    let key = weir.key().text;
    let body = String::from_utf8(Wire::Messages.streaming(&key, "hi").body).unwrap();
    let words: [(&str, &str); 6] = [
        ("{host}", "host: weir.test\r\n"),
        ("{key}", &format!("x-api-key: {key}\r\n")),
        ("{secret}", &key),
        ("{length}", &body.len().to_string()),
        ("{size}", &format!("{:x}", body.len())),
        ("{body}", &body),
    ];
    try_all("slow", &weir, &read("slow"), &words);
}

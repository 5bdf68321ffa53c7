//! What HTTP/2 does not allow (`tests/hostile/http2.toml`): it is refused, and nothing of it is passed on.

use super::attacks::{read, try_all};
use crate::harness::request::Wire;
use crate::harness::{RecordingProvider, WeirBuilder};

/// How long a connection may be idle; those that are not refused otherwise end with it.
const IDLE_SECONDS: i64 = 2;

#[test]
fn what_http2_does_not_allow_is_refused_and_not_passed_on() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.keepalive_seconds", IDLE_SECONDS)
        .start();
    let key = weir.key().text;
    let body = String::from_utf8(Wire::Messages.request(&key, "hi").body).unwrap();
    let words: [(&str, &str); 4] = [
        ("{host}", "host: weir.test\r\n"),
        ("{secret}", &key),
        ("{length}", &body.len().to_string()),
        ("{body}", &body),
    ];
    try_all("http2", &weir, &read("http2"), &words);
    assert_eq!(provider.count(), 0, "{:?}", provider.requests());
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}

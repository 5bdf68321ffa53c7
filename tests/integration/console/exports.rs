//! The log as a file, from its page.

use serde_json::json;

use super::{builder, signed_in};
use crate::harness::RESPONSES_MODEL;
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::websocket::WebSocket;

const FORMS: [(&str, &str); 3] = [
    ("jsonl", "application/x-ndjson"),
    ("csv", "text/csv; charset=utf-8"),
    ("parquet", "application/vnd.apache.parquet"),
];

#[test]
fn the_page_of_the_log_exports_what_the_command_does_and_tells_holds_attempts_and_sockets() {
    let provider = SampleProvider::start();
    let weir = builder(&provider.base_url()).start();
    let (key, other) = (weir.key(), weir.key());
    for key in [&key, &key, &other] {
        let request = Wire::Messages.request(&key.text, "Tell me of weirs. [[sample: deltas=3]]");
        assert_eq!(weir.exchange(&request).status, 200);
    }
    let create = json!({"type": "response.create", "model": RESPONSES_MODEL, "store": false,
        "input": "Tell me of weirs. [[sample: deltas=3]]"});
    WebSocket::open(weir.gateway, &other.text).ask(&create).completed();
    weir.books(4);
    let tab = signed_in(&weir, "viewer");
    let page = tab.page("/log");
    assert!(
        page.contains("<dt>Held</dt>") && page.contains(" when it was admitted"),
        "{page}"
    );
    assert!(page.contains("<dt>Attempts</dt><dd>1 at a provider</dd>"), "{page}");
    assert_eq!(page.matches(", on a WebSocket").count(), 1, "{page}");
    for (form, kind) in FORMS {
        assert!(
            page.contains(&format!("href=\"/log/export/{form}?hours=24\"")),
            "{page}"
        );
        let file = tab.get(&format!("/log/export/{form}?hours=24"));
        assert_eq!((file.status, file.header("content-type")), (200, Some(kind)));
        let kept = format!("attachment; filename=\"weir-log.{form}\"");
        assert_eq!(file.header("content-disposition"), Some(&*kept));
        let by_command = weir.cli(&["log", "export", "--format", form], &[]);
        assert!(by_command.status.success() && file.body == by_command.stdout, "{form}");
    }
    let of_key = tab.get(&format!("/log/export/csv?hours=24&key={}", key.id)).text();
    let lines: Vec<&str> = of_key.lines().collect();
    assert!(
        lines.len() == 3 && lines[0].ends_with(",transport,translated,losses"),
        "{of_key}"
    );
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.ends_with(",1,0,0,0,0,0,0,,,") && line.contains(&key.id)),
        "{of_key}"
    );
    assert_eq!(tab.get("/log/export/xlsx").status, 404);
}

//! The provider over real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;

use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::*;
use crate::sample_provider::script::SampleScript;
use crate::sample_provider::{ClientGoneBilling, TokenCounting};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/openai/v1/responses";
const CHAT: &str = "/openai/v1/chat/completions";
const GEMINI_SSE: &str = "/v1beta/models/sample-1%3AstreamGenerateContent?alt=sse";
const GEMINI_ARRAY: &str = "/v1/models/sample-1:streamGenerateContent";
const GEMINI_UNARY: &str = "/v1/models/sample-1:generateContent";

/// A provider that stops when this is dropped.
struct Running {
    address: SocketAddr,
    folder: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
}

async fn start(settings: SampleSettings) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let settings = SampleSettings {
        ledger: Some(folder.path().join("ledger.jsonl")),
        ..settings
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(serve(listener, settings, async move {
        let _ = stopped.await;
    }));
    Running {
        address,
        folder,
        _stop: stop,
    }
}

impl Running {
    fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger.jsonl")
    }

    fn ledger(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.ledger_path()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The `end` lines, as soon as there are `count`.
    async fn bills(&self, count: usize) -> Vec<Value> {
        let found = async {
            loop {
                let bills: Vec<Value> = self
                    .ledger()
                    .into_iter()
                    .filter(|line| line["event"] == "end")
                    .collect();
                if bills.len() >= count {
                    return bills;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), found)
            .await
            .expect("the bill is written")
    }
}

fn body(prompt: &str, streamed: bool) -> Value {
    json!({"model": "sample-1", "stream": streamed, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": prompt}],
        "input": prompt, "contents": [{"parts": [{"text": prompt}]}]})
}

fn request(path: &str, body: &Value) -> Request<Full<Bytes>> {
    let builder = Request::post(path)
        .header("host", "sample")
        .header("authorization", "Bearer any");
    builder.body(Full::new(body.to_string().into())).unwrap()
}

async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

async fn post(running: &Running, path: &str, prompt: &str, streamed: bool) -> Response<Incoming> {
    send(running.address, request(path, &body(prompt, streamed))).await
}

/// What arrived, and whether the body ended properly.
async fn read(response: Response<Incoming>) -> (Vec<u8>, bool) {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    loop {
        match body.frame().await {
            None => return (bytes, true),
            Some(Err(_)) => return (bytes, false),
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().unwrap()),
        }
    }
}

async fn text(response: Response<Incoming>) -> String {
    let (bytes, whole) = read(response).await;
    assert!(whole);
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn every_protocol_streams_and_bills_what_it_reports() {
    let running = start(SampleSettings::default()).await;
    for (path, kind, last) in [
        (MESSAGES, "text/event-stream; charset=utf-8", "event: message_stop"),
        (
            RESPONSES,
            "text/event-stream; charset=utf-8",
            "event: response.completed",
        ),
        (CHAT, "text/event-stream; charset=utf-8", "data: [DONE]"),
        (GEMINI_SSE, "text/event-stream", "\"finishReason\":\"STOP\""),
        (
            GEMINI_ARRAY,
            "application/json; charset=UTF-8",
            "\"finishReason\":\"STOP\"",
        ),
    ] {
        let response = post(&running, path, "hello", true).await;
        assert_eq!(response.headers()["content-type"], kind);
        let name = if path == MESSAGES { "request-id" } else { "x-request-id" };
        let id = response.headers()[name].to_str().unwrap().to_owned();
        let text = text(response).await;
        assert!(text.contains(last), "{text}");
        let ledger = running.ledger();
        let lines: Vec<&Value> = ledger.iter().filter(|line| line["request_id"] == id.as_str()).collect();
        let [start, end] = lines.as_slice() else {
            panic!("two lines: {lines:?}")
        };
        assert_eq!((&start["event"], &start["output_tokens"]), (&json!("start"), &json!(0)));
        assert_eq!(
            (&end["ending"], &end["client_left"]),
            (&json!("complete"), &json!(false))
        );
        let output = end["output_tokens"].as_u64().unwrap();
        assert!(output > 0 && text.contains(&format!(":{output}")), "{output} in {text}");
    }
    let text = std::fs::read_to_string(running.ledger_path()).unwrap();
    assert!(!text.contains("hello"));
}

#[tokio::test]
async fn every_protocol_answers_at_once_when_asked_to() {
    let running = start(SampleSettings::default()).await;
    for path in [MESSAGES, RESPONSES, CHAT, GEMINI_UNARY] {
        let response = post(&running, path, "hello", false).await;
        assert_eq!(response.status(), 200);
        let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let text = text(response).await;
        assert_eq!(text.len(), length);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value.to_string().contains("You said \\\"hello\\\"."), "{value}");
    }
    assert_eq!(running.bills(4).await.len(), 4);
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_spoken() {
    let running = start(SampleSettings::default()).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}{MESSAGES}", running.address);
    let request = Request::post(uri)
        .header("x-api-key", "k")
        .body(Full::new(Bytes::from(body("hi", true).to_string())));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(text(response).await.contains("event: message_stop"));
}

#[tokio::test]
async fn a_cut_breaks_the_connection_after_its_delta_and_a_clean_one_does_not() {
    let running = start(SampleSettings::default()).await;
    let (bytes, whole) = read(post(&running, MESSAGES, "[[sample: cut_after=3]]", true).await).await;
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!((text.matches("event: content_block_delta").count(), whole), (3, false));
    assert!(text.ends_with("\n\n"));
    let (bytes, whole) = read(post(&running, MESSAGES, "[[sample: cut_after=3 close=clean]]", true).await).await;
    let text = String::from_utf8(bytes).unwrap();
    assert!(whole && !text.contains("message_stop"));
    let (bytes, whole) = read(post(&running, RESPONSES, "[[sample: cut_after=1 half_event=true]]", true).await).await;
    assert!(!whole && !bytes.ends_with(b"\n\n"));
    let (bytes, whole) = read(post(&running, MESSAGES, "[[sample: cut_after=0]]", false).await).await;
    assert!(!whole && !bytes.is_empty());
    let endings: Vec<Value> = running
        .bills(4)
        .await
        .iter()
        .map(|bill| bill["ending"].clone())
        .collect();
    assert_eq!(endings, ["cut", "cut", "cut", "cut"]);
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let running = start(SampleSettings::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let body = body("[[sample: cut_after=2 close=reset]]", true).to_string();
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: s\r\nx-api-key: k\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Reads until `count` deltas are there, then leaves.
async fn leave_after(response: Response<Incoming>, count: usize) {
    let mut body = response.into_body();
    let mut text = String::new();
    while text.matches("event: content_block_delta").count() < count {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
}

#[tokio::test]
async fn a_stalled_stream_waits_until_the_client_leaves_and_bills_what_it_generated() {
    let running = start(SampleSettings {
        counting: TokenCounting::Fixed,
        ..SampleSettings::default()
    })
    .await;
    leave_after(
        post(&running, MESSAGES, "[[sample: deltas=9 stall_after=2]]", true).await,
        2,
    )
    .await;
    let bills = running.bills(1).await;
    let expected = (&json!(true), &json!("client_left"), &json!(2));
    assert_eq!(
        (
            &bills[0]["client_left"],
            &bills[0]["ending"],
            &bills[0]["output_tokens"]
        ),
        expected
    );
}

#[tokio::test]
async fn after_a_client_has_left_the_whole_answer_is_billed_unless_generation_stops() {
    for (on_client_gone, output) in [(ClientGoneBilling::Finish, 50), (ClientGoneBilling::Stop, 1)] {
        let running = start(SampleSettings {
            counting: TokenCounting::Fixed,
            on_client_gone,
            ..SampleSettings::default()
        })
        .await;
        let prompt = "[[sample: deltas=50 gap_ms=60000]]";
        leave_after(post(&running, MESSAGES, prompt, true).await, 1).await;
        assert_eq!(running.bills(1).await[0]["output_tokens"], output, "{on_client_gone:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_is_billed_too() {
    let running = start(SampleSettings {
        counting: TokenCounting::Fixed,
        ..SampleSettings::default()
    })
    .await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let prompt = "[[sample: deltas=5 ttfb_ms=600000]]";
    let answer = tokio::spawn(async move { sender.send_request(request(MESSAGES, &body(prompt, true))).await });
    while running.ledger().is_empty() {
        tokio::task::yield_now().await;
    }
    connection.abort();
    answer.abort();
    assert_eq!(running.bills(1).await[0]["output_tokens"], 5);
}

#[tokio::test]
async fn gzip_is_announced_and_whole() {
    let running = start(SampleSettings::default()).await;
    for (path, streamed) in [(MESSAGES, true), (GEMINI_SSE, true), (RESPONSES, false)] {
        let response = post(&running, path, "hello [[sample: encoding=gzip]]", streamed).await;
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let (bytes, whole) = read(response).await;
        assert!(whole);
        let mut plain = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut plain).unwrap();
        assert!(plain.contains("You said"), "{plain}");
    }
}

#[tokio::test]
async fn errors_are_answered_in_shape_and_cost_nothing() {
    let running = start(SampleSettings::default()).await;
    let response = post(&running, RESPONSES, "[[sample: status=429]]", true).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &HeaderValue::from_static("1"))
    );
    assert!(response.headers().contains_key("openai-processing-ms"));
    let bill = &running.bills(1).await[0];
    assert_eq!(
        (&bill["status"], &bill["input_tokens"], &bill["ending"]),
        (&json!(429), &json!(0), &json!("refused"))
    );
    let response = send(running.address, Request::get(MESSAGES).body(Full::default()).unwrap()).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["allow"]),
        (405, &HeaderValue::from_static("POST"))
    );
    assert_eq!(post(&running, "/v1/completions", "x", false).await.status(), 404);
}

#[tokio::test]
async fn a_fault_of_a_chat_request_is_named_even_if_answers_are_reused() {
    let script = SampleScript {
        deltas: Some(4),
        ..SampleScript::default()
    };
    let settings = SampleSettings {
        script,
        counting: TokenCounting::Fixed,
        ..SampleSettings::default()
    };
    let running = start(settings).await;
    let first = text(post(&running, CHAT, "one", true).await).await;
    assert_eq!(text(post(&running, CHAT, "two", true).await).await, first);
    let mut faulty = body("hi", true);
    faulty["messages"][0]["role"] = json!("robot");
    let response = send(running.address, request(CHAT, &faulty)).await;
    assert_eq!(response.status(), 400);
    let error: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(error["error"]["code"], "invalid_role", "{error}");
    let bills = running.bills(3).await;
    assert!(bills.iter().all(|bill| bill["protocol"] == "chat"), "{bills:?}");
}

#[tokio::test]
async fn a_credential_is_needed_and_may_have_to_be_the_right_one() {
    let running = start(SampleSettings {
        required_key: Some("right".to_owned()),
        ..SampleSettings::default()
    })
    .await;
    for (name, key, status) in [
        ("x-api-key", "right", 200),
        ("authorization", "Bearer right", 200),
        ("x-goog-api-key", "right", 200),
        ("api-key", "right", 200),
        ("x-api-key", "wrong", 401),
        ("accept", "*/*", 401),
    ] {
        let body = Full::new(Bytes::from(body("hi", false).to_string()));
        let response = send(
            running.address,
            Request::post(MESSAGES).header(name, key).body(body).unwrap(),
        )
        .await;
        assert_eq!(response.status(), status, "{name} {key}");
    }
}

#[tokio::test]
async fn fixed_answers_are_rendered_once_and_long_prompts_are_taken() {
    let script = SampleScript {
        deltas: Some(4),
        ..SampleScript::default()
    };
    let settings = SampleSettings {
        script,
        counting: TokenCounting::Fixed,
        ..SampleSettings::default()
    };
    let running = start(settings).await;
    let first = text(post(&running, MESSAGES, "one", true).await).await;
    let second = text(post(&running, MESSAGES, "two", true).await).await;
    assert_eq!(first, second);
    assert!(!first.contains("one"));
    let running = start(SampleSettings::default()).await;
    assert!(
        text(post(&running, MESSAGES, &"long ".repeat(400_000), true).await)
            .await
            .contains("message_stop")
    );
    assert_eq!(running.bills(1).await[0]["input_estimated"], true);
}

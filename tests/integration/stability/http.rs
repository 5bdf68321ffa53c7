//! The public service over both of its ports.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use serde_json::Value as Json;

use crate::harness::client::Response;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::request::Upload;
use crate::harness::{Client, MESSAGES_MODEL, Request, Weir, WeirBuilder, wait_until};

pub(super) const SUMMARY: &str = "/web/v1/model-stability/summary";

/// A gateway whose snapshot is not read anew during a test, with a model that has a slash and a colon in its name.
pub(super) fn weir() -> WeirBuilder {
    let mut model = toml::Table::new();
    model.insert("name".to_owned(), "org/house:model".into());
    model.insert("aliases".to_owned(), vec!["house@alias"].into());
    model.insert("providers".to_owned(), vec!["anthropic"].into());
    model.insert("free".to_owned(), true.into());
    WeirBuilder::new()
        .provider("anthropic", "http://127.0.0.1:9")
        .set("stability.refresh_seconds", 60)
        .set_top("model", vec![toml::Value::Table(model)])
}

/// Started, and its record was read.
#[track_caller]
pub(super) fn started(builder: WeirBuilder) -> Weir {
    let weir = builder.start();
    // Each time from another address, so that no test's limit is touched.
    let mut addresses = (1..=u16::MAX).map(u16::to_be_bytes);
    wait_until("the first snapshot", || {
        let [third, fourth] = addresses.next().unwrap();
        from([127, 9, third, fourth], weir.stability, &Request::get("/status")).status == 200
    });
    weir
}

pub(super) fn side(weir: &Weir, request: &Request) -> Response {
    Client::connect(weir.stability).exchange(request)
}

fn get(weir: &Weir, target: &str) -> Response {
    side(weir, &Request::get(target))
}

/// What is the same on both ports: all but what tells of the connection and of the gateway's log.
fn comparable(response: &Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let own = ["date", "connection", "keep-alive", "x-weir-request-id", "server"];
    let mut headers = response.headers.clone();
    headers.retain(|(name, _)| !own.contains(&name.as_str()));
    headers.sort();
    (response.status, headers, response.body.clone())
}

#[test]
fn both_ports_give_the_same_bytes() {
    let weir = started(weir());
    let model = format!("/web/v1/model-stability/{MESSAGES_MODEL}");
    let page = format!("/status/{MESSAGES_MODEL}");
    for request in [
        Request::get(SUMMARY),
        Request::get(SUMMARY).header("accept-encoding", "br"),
        Request::get(&model).header("accept-encoding", "gzip"),
        Request::get("/status"),
        Request::get(&page),
        Request::get("/web/v1/openapi.json"),
        Request::get(&model).header("if-none-match", "*"),
        Request::get("/web/v1/model-stability/unknown"),
        Request::get("/web/v1/model-stability/summary?hours=23"),
        Request::new("HEAD", &model),
        Request::new("OPTIONS", SUMMARY),
        Request::post(SUMMARY).json("{}"),
    ] {
        let (one, other) = (side(&weir, &request), weir.exchange(&request));
        assert!(one.complete && other.complete);
        assert_eq!(
            comparable(&one),
            comparable(&other),
            "{} {}",
            request.method,
            request.target
        );
        let h2 = h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Unsaid);
        assert_eq!(
            comparable(&one),
            comparable(&h2),
            "{} {} over h2c",
            request.method,
            request.target
        );
    }
}

#[test]
fn the_record_has_exactly_its_fields_and_lists_every_model_that_is_on() {
    let weir = started(weir());
    let fields = |value: &Json| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let summary = get(&weir, &format!("{SUMMARY}?hours=24&colour=blue")).json();
    assert_eq!(
        (fields(&summary), &summary["success"]),
        (vec!["success".to_owned(), "data".to_owned()], &Json::from(true))
    );
    let rows = summary["data"].as_array().unwrap();
    for row in rows {
        assert_eq!(
            fields(row),
            ["model_name", "success_rate", "avg_latency_ms", "avg_tps", "confidence"]
        );
        assert!(
            ["success_rate", "avg_latency_ms", "avg_tps"]
                .iter()
                .all(|name| row[name].is_number()),
            "{row}"
        );
    }
    let names: Vec<&str> = rows.iter().map(|row| row["model_name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&MESSAGES_MODEL) && names.contains(&"org/house:model"),
        "{names:?}"
    );
    assert!(!names.contains(&"gemini-3.8-flash"), "its provider is off");
    let detail = get(&weir, &format!("/web/v1/model-stability/{MESSAGES_MODEL}")).json();
    let data = &detail["data"];
    assert_eq!(
        fields(data),
        ["model_name", "confidence", "summary", "series", "updated_at"]
    );
    assert_eq!(
        fields(&data["summary"]),
        ["success_rate", "avg_latency_ms", "avg_ttft_ms", "avg_tps"]
    );
    let series = data["series"].as_array().unwrap();
    assert_eq!(series.len(), 24);
    for pair in series.windows(2) {
        assert_eq!(pair[1]["ts"].as_i64().unwrap() - pair[0]["ts"].as_i64().unwrap(), 3600);
    }
    for point in series {
        assert_eq!(
            fields(point),
            [
                "ts",
                "success_rate",
                "avg_latency_ms",
                "avg_ttft_ms",
                "avg_tps",
                "confidence"
            ]
        );
        assert_eq!(point["ts"].as_i64().unwrap() % 3600, 0);
    }
    let age = jiff::Timestamp::now().as_second() - data["updated_at"].as_i64().unwrap();
    assert!((-1..=120).contains(&age), "{age}");
}

#[test]
fn names_with_slash_and_colon_are_found_in_every_encoding_and_markup_is_not_echoed() {
    let weir = started(weir());
    for key in [
        "org%2Fhouse%3Amodel",
        "org/house:model",
        "org%2fhouse:model",
        "house@alias",
        "house%40alias",
    ] {
        for address in [weir.stability, weir.gateway] {
            let answer = Client::connect(address).exchange(&Request::get(&format!("/web/v1/model-stability/{key}")));
            assert_eq!(answer.status, 200, "{key}: {}", answer.text());
            assert_eq!(answer.json()["data"]["model_name"], "org/house:model", "{key}");
            let page = Client::connect(address).exchange(&Request::get(&format!("/status/{key}")));
            assert_eq!(
                (page.status, page.header("content-type")),
                (200, Some("text/html; charset=utf-8"))
            );
            assert!(
                page.header("content-security-policy")
                    .unwrap()
                    .contains("default-src 'none'")
            );
        }
    }
    for key in [
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "%F0%9F%A6%8A",
        "%FF",
        "..%2F..%2Fetc",
        "",
    ] {
        for path in ["/web/v1/model-stability/", "/status/"] {
            let answer = get(&weir, &format!("{path}{key}"));
            assert_eq!(answer.status, 404, "{path}{key}");
            assert_eq!(answer.json()["error"]["code"], "model_not_found");
            assert!(!answer.text().contains("alert"));
        }
    }
}

#[test]
fn what_is_wrong_is_said_in_one_shape() {
    let weir = started(weir());
    let model = format!("/web/v1/model-stability/{MESSAGES_MODEL}");
    for hours in ["0", "48", "-24", "x", "", "24.0", "24&hours=24"] {
        for path in [SUMMARY, &model] {
            let answer = get(&weir, &format!("{path}?hours={hours}"));
            assert_eq!(answer.status, 400, "{hours}");
            assert_eq!(answer.json()["success"], false);
            assert_eq!(answer.json()["error"]["code"], "hours_not_supported");
        }
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let answer = side(&weir, &Request::new(method, SUMMARY));
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
        assert_eq!(answer.json()["error"]["code"], "method_not_allowed");
    }
    let elsewhere = get(&weir, "/v1/models");
    assert_eq!(
        (elsewhere.status, &elsewhere.json()["error"]["code"]),
        (404, &Json::from("path_not_found"))
    );
    let own = weir.exchange(&Request::get("/web/v1/other"));
    assert_eq!(own.status, 404, "the gateway's own refusal");
    assert!(own.json()["error"]["type"].is_string(), "{}", own.text());
}

#[test]
fn an_answer_that_is_known_is_not_sent_again_and_compressed_ones_hold_the_same() {
    let weir = started(weir());
    let model = format!("/web/v1/model-stability/{MESSAGES_MODEL}");
    let plain = get(&weir, &model);
    let mut tags = vec![plain.header("etag").unwrap().to_owned()];
    assert_eq!(plain.header("cache-control"), Some("public, max-age=60"));
    assert_eq!(plain.header("access-control-allow-origin"), Some("*"));
    assert_eq!(plain.header("x-content-type-options"), Some("nosniff"));
    for coding in ["gzip", "br"] {
        let packed = side(&weir, &Request::get(&model).header("accept-encoding", coding));
        assert_eq!(packed.header("content-encoding"), Some(coding));
        let mut unpacked = Vec::new();
        match coding {
            "gzip" => drop(
                flate2::read::GzDecoder::new(&packed.body[..])
                    .read_to_end(&mut unpacked)
                    .unwrap(),
            ),
            _ => brotli::BrotliDecompress(&mut &packed.body[..], &mut unpacked).unwrap(),
        }
        assert_eq!(unpacked, plain.body, "{coding}");
        tags.push(packed.header("etag").unwrap().to_owned());
    }
    let mut client = Client::connect(weir.stability);
    for (tag, coding) in tags.iter().zip(["identity", "gzip", "br"]) {
        let request = Request::get(&model)
            .header("if-none-match", &format!("\"x\", {tag}"))
            .header("accept-encoding", coding);
        let answer = client.exchange(&request);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{coding}");
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
        assert_eq!(answer.header("content-length"), None);
    }
    assert_eq!(
        client.exchange(&Request::get(&model)).status,
        200,
        "the connection goes on"
    );
}

#[test]
fn head_has_the_length_and_no_body_on_both_ports() {
    let weir = started(weir());
    let length = get(&weir, SUMMARY).body.len().to_string();
    for address in [weir.stability, weir.gateway] {
        let mut client = Client::connect(address);
        for _ in 0..2 {
            let head = client.exchange(&Request::new("HEAD", SUMMARY));
            assert_eq!(
                (head.status, head.header("content-length")),
                (200, Some(length.as_str()))
            );
        }
        assert_eq!(client.exchange(&Request::get(SUMMARY)).body.len().to_string(), length);
    }
    let h2 = h2c::exchange(
        weir.gateway,
        &Request::new("HEAD", SUMMARY),
        EndStream::OnLastFrame,
        Length::Unsaid,
    );
    assert_eq!(
        (h2.status, h2.body.len(), h2.header("content-length")),
        (200, 0, Some(length.as_str()))
    );
}

#[test]
fn browsers_of_every_site_may_read() {
    let weir = started(weir());
    let preflight = Request::new("OPTIONS", SUMMARY)
        .header("origin", "https://status.example")
        .header("access-control-request-method", "GET");
    let answer = side(&weir, &preflight);
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, HEAD"));
}

/// One request from this local address.
pub(super) fn from(source: [u8; 4], to: SocketAddr, request: &Request) -> Response {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(source), 0)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stream = runtime.block_on(socket.connect(to)).unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut stream: TcpStream = stream;
    stream
        .write_all(&request.clone().header("connection", "close").bytes(Upload::Length))
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Response {
        status,
        headers,
        body: body.as_bytes().to_vec(),
        complete: true,
    }
}

#[test]
fn the_gateway_logs_it_without_a_key_and_without_an_address() {
    let weir = started(weir());
    let answer = weir.exchange(&Request::get(SUMMARY).header("x-api-key", "whatever"));
    let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
    assert_eq!(
        (&line["operation"], &line["status"], &line["outcome"]),
        (&Json::from("stability"), &Json::from(200), &Json::from("ok")),
        "{line}"
    );
    assert!(line.get("key_id").is_none() && line.get("protocol").is_none(), "{line}");
    assert!(!line.to_string().contains("127.0.0.1"), "{line}");
    assert_eq!(line["response_bytes"].as_u64(), Some(answer.body.len() as u64));
    assert_eq!(weir.access_lines().len(), 1, "the side listener has no access log");
}

//! The model list: three shapes on one path, page by page, and one model by its name.

use toml::Value as Toml;

use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{GEMINI_MODEL, MESSAGES_MODEL, Request, Weir, WeirBuilder};

/// Names as a catalogue may have them beside the shipped ones.
const ODD_NAMES: [&str; 3] = ["house/large", "house:small", "house@2026"];

fn weir() -> Weir {
    let model = |name: &str, provider: &str| {
        let mut table = toml::Table::new();
        table.insert("name".to_owned(), name.into());
        table.insert("free".to_owned(), true.into());
        table.insert("providers".to_owned(), Toml::Array(vec![provider.into()]));
        Toml::Table(table)
    };
    let mut models: Vec<Toml> = (0..60)
        .map(|number| model(&format!("many-{number:02}"), "anthropic"))
        .collect();
    models.extend((0..60).map(|number| model(&format!("more-{number:02}"), "gemini")));
    models.extend(ODD_NAMES.map(|name| model(name, "anthropic")));
    models.push(model("house/gemini", "gemini"));
    WeirBuilder::new()
        .all_providers("http://127.0.0.1:9")
        .set_top("model", Toml::Array(models))
        .start()
}

fn messages(key: &str, target: &str) -> Request {
    Request::get(target)
        .header("authorization", &format!("Bearer {key}"))
        .header("anthropic-version", "2026-10-21")
}

fn gemini(key: &str, target: &str) -> Request {
    Request::get(target).header("x-goog-api-key", key)
}

fn responses(key: &str, target: &str) -> Request {
    Request::get(target).header("authorization", &format!("Bearer {key}"))
}

#[test]
fn the_messages_list_comes_in_pages_in_both_directions() {
    let weir = weir();
    let key = weir.key().text;
    let all = weir.exchange(&messages(&key, "/v1/models?limit=1000")).json();
    assert_eq!(all["has_more"], false);
    let names = |list: &serde_json::Value| -> Vec<String> {
        let entries = list["data"].as_array().unwrap().iter();
        entries.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = names(&all);
    assert!(all.len() > 60);
    assert_eq!(
        weir.exchange(&messages(&key, "/v1/models")).json()["data"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = weir
            .exchange(&messages(&key, &format!("/v1/models?limit=7{after}")))
            .json();
        let page_names = names(&page);
        assert_eq!(page["first_id"], page_names.first().cloned().unwrap());
        assert_eq!(page["last_id"], page_names.last().cloned().unwrap());
        seen.extend(page_names);
        if page["has_more"] == false {
            break;
        }
        // As SDKs put it into a query.
        let last = page["last_id"]
            .as_str()
            .unwrap()
            .replace('/', "%2F")
            .replace(':', "%3A");
        after = format!("&after_id={last}");
    }
    assert_eq!(seen, all);
    let before = weir
        .exchange(&messages(&key, &format!("/v1/models?limit=3&before_id={}", all[5])))
        .json();
    assert_eq!(names(&before), all[2..5]);
    assert_eq!(before["has_more"], true);
    for bad in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "after_id=nobody",
        "before_id=nobody",
        "after_id=a&before_id=b",
    ] {
        let answer = weir.exchange(&messages(&key, &format!("/v1/models?{bad}")));
        assert_refusal(Wire::Messages, &answer, 400, "invalid_request_error");
    }
}

#[test]
fn the_gemini_list_comes_in_pages() {
    let weir = weir();
    let key = weir.key().text;
    let first = weir.exchange(&gemini(&key, "/v1beta/models")).json();
    assert_eq!(first["models"].as_array().unwrap().len(), 50);
    assert!(first["nextPageToken"].is_string());
    for path in ["/v1beta/models", "/v1/models"] {
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let page = weir
                .exchange(&gemini(&key, &format!("{path}?pageSize=9{token}")))
                .json();
            let entries = page["models"].as_array().unwrap().iter();
            seen.extend(entries.map(|model| model["name"].as_str().unwrap().to_owned()));
            let Some(next) = page["nextPageToken"].as_str() else {
                break;
            };
            token = format!("&pageToken={}", next.replace('/', "%2F"));
        }
        assert!(seen.len() > 60 && seen.is_sorted(), "{seen:?}");
        assert!(seen.contains(&format!("models/{GEMINI_MODEL}")));
    }
    for bad in ["pageSize=0", "pageSize=1001", "pageSize=-5", "pageToken=nobody"] {
        let answer = weir.exchange(&gemini(&key, &format!("/v1beta/models?{bad}")));
        assert_refusal(Wire::Gemini, &answer, 400, "INVALID_ARGUMENT");
    }
}

#[test]
fn the_responses_list_is_whole_whatever_is_asked() {
    let weir = weir();
    let key = weir.key().text;
    let list = weir
        .exchange(&responses(&key, "/v1/models?limit=2&after_id=nobody&pageSize=x"))
        .json();
    assert!(list["data"].as_array().unwrap().len() > 120);
}

#[test]
fn one_model_is_found_by_any_name_that_a_catalogue_may_have() {
    let weir = weir();
    let key = weir.key().text;
    for name in ODD_NAMES.into_iter().chain([MESSAGES_MODEL]) {
        let encoded = name.replace('/', "%2F").replace(':', "%3A").replace('@', "%40");
        for written in [name, encoded.as_str()] {
            let target = format!("/v1/models/{written}");
            let shown = weir.exchange(&messages(&key, &target));
            assert_eq!(
                (shown.status, &shown.json()["id"]),
                (200, &name.into()),
                "{target}: {}",
                shown.text()
            );
            assert_eq!(shown.json()["type"], "model");
            let shown = weir.exchange(&responses(&key, &target));
            assert_eq!(
                (&shown.json()["id"], &shown.json()["object"]),
                (&name.into(), &"model".into()),
                "{target}"
            );
        }
    }
    for name in [GEMINI_MODEL, "house/gemini", "house%2Fgemini"] {
        for path in ["/v1beta/models/", "/v1/models/"] {
            let shown = weir.exchange(&gemini(&key, &format!("{path}{name}")));
            let expected = format!("models/{}", name.replace("%2F", "/"));
            assert_eq!(shown.json()["name"], expected, "{path}{name}");
        }
    }
    for (request, wire, kind) in [
        (
            messages(&key, "/v1/models/no%2Fsuch"),
            Wire::Messages,
            "not_found_error",
        ),
        (
            responses(&key, "/v1/models/no%2Fsuch"),
            Wire::Responses,
            "model_not_found",
        ),
        (gemini(&key, "/v1/models/no%2Fsuch"), Wire::Gemini, "NOT_FOUND"),
        (gemini(&key, "/v1beta/models/no:such"), Wire::Gemini, "NOT_FOUND"),
    ] {
        assert_refusal(wire, &weir.exchange(&request), 404, kind);
    }
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    let weir = weir();
    let key = weir.key().text;
    for request in [
        messages(&key, "/v1/models"),
        responses(&key, "/v1/models"),
        gemini(&key, "/v1beta/models"),
        messages(&key, "/v1/models/house%2Flarge"),
        messages(&key, "/v1/models?limit=0"),
    ] {
        let get = weir.exchange(&request);
        let ids = ["request-id", "x-request-id"].map(|name| get.header(name).is_some());
        let is_messages = request.headers.iter().any(|(name, _)| name == "anthropic-version");
        assert_eq!(ids, [is_messages, !is_messages], "{}", request.target);
        let head = Request {
            method: "HEAD".to_owned(),
            ..request.clone()
        };
        let mut client = weir.connect();
        client.write(&head.head_bytes(Upload::Length));
        let answer = client.response_to("HEAD");
        assert_eq!(answer.status, get.status, "{}", request.target);
        assert_eq!(answer.header("content-type"), get.header("content-type"));
        assert!(answer.body.is_empty());
        // What follows on the connection is the next answer and no leftover body.
        client.write(&request.head_bytes(Upload::Length));
        assert_eq!(client.response_to("GET").status, get.status, "{}", request.target);
        let answer = h2c::exchange(weir.gateway, &head, EndStream::OnLastFrame, Length::Unsaid);
        assert_eq!(
            (answer.status, answer.body.len()),
            (get.status, 0),
            "{} over h2c",
            request.target
        );
        assert!(answer.complete);
    }
}

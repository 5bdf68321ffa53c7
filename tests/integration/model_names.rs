//! Names of models: marks of context windows, dates of snapshots, other names of a family, and any that can be printed.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;
use toml::Value as Toml;

use crate::harness::books::cost;
use crate::harness::client::Response;
use crate::harness::recordings::unary;
use crate::harness::request::Wire;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder};

/// A provider of the recordings at whatever path.
fn provider() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        let is_at = |path: &str| request.target.contains(path);
        answer.json(unary(match (is_at("/messages"), is_at("/responses")) {
            (true, _) => Wire::Messages,
            (false, true) => Wire::Responses,
            (false, false) => Wire::Gemini,
        }));
    })
}

/// A unary request to a model whose name may have to be escaped where it stands.
fn ask(wire: Wire, model: &str, key: &str) -> Request {
    let name = match wire {
        Wire::Gemini => utf8_percent_encode(model, NON_ALPHANUMERIC).to_string(),
        Wire::Messages | Wire::Responses => {
            let text = Json::from(model).to_string();
            text[1..text.len() - 1].to_owned()
        }
    };
    wire.request_for(&name, key, "hi")
}

/// The request's row.
fn row(weir: &Weir, answer: &Response) -> Json {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.header("x-weir-request-id").unwrap();
    weir.access_line(id);
    let find = || weir.rows().into_iter().find(|row| row["request_id"] == id);
    crate::harness::wait_for("the row", find)
}

/// The model that the provider was last asked for, in the body or in the path.
fn sent(provider: &RecordingProvider) -> String {
    let last = provider.last();
    let body: Json = serde_json::from_slice(&last.body).unwrap();
    match body["model"].as_str() {
        Some(model) => model.to_owned(),
        None => last.target,
    }
}

#[test]
fn what_a_name_means_is_served_at_its_price_and_the_row_has_what_was_asked() {
    let provider = provider();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    let key = weir.key().text;
    for (wire, asked, model) in [
        // Marks of context windows, as Claude Code appends them.
        (Wire::Messages, "deepseek-v4-pro[1m]", "deepseek-v4-pro"),
        (Wire::Responses, "deepseek-v4-pro[1m]", "deepseek-v4-pro"),
        (Wire::Messages, "claude-opus-5-5[1m]", "claude-opus-5-5"),
        (Wire::Messages, "claude-opus-5-5[200K]", "claude-opus-5-5"),
        (Wire::Gemini, "gemini-3.8-flash[1m]", "gemini-3.8-flash"),
        // Dates of snapshots.
        (Wire::Messages, "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        (Wire::Messages, "claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        (Wire::Messages, "claude-haiku-4-5-20251001[1m]", "claude-haiku-4-5"),
        (Wire::Responses, "gpt-5.5-2026-04-01", "gpt-5.5"),
        (Wire::Gemini, "gemini-3.8-flash-20260901", "gemini-3.8-flash"),
        (Wire::Messages, "deepseek-v4-pro-20260301", "deepseek-v4-pro"),
        // The rest of provider 2's family.
        (Wire::Messages, "Deepseek-chat", "deepseek-flash"),
        (Wire::Messages, "DEEPSEEK-R1", "deepseek-flash"),
        (Wire::Messages, "deepseek-v9-pro[1m]", "deepseek-flash"),
        (Wire::Messages, "deepseek-\u{6a21}\u{578b} \"9\"", "deepseek-flash"),
        (Wire::Responses, "Deepseek-chat", "deepseek-flash"),
        (Wire::Responses, "deepseek-v9-pro[1m]", "deepseek-flash"),
    ] {
        let plain = row(&weir, &weir.exchange(&ask(wire, model, &key)));
        let row = row(&weir, &weir.exchange(&ask(wire, asked, &key)));
        assert_eq!(
            (&row["model_asked"], &row["model"]),
            (&asked.into(), &model.into()),
            "{row}"
        );
        assert_eq!(
            (cost(&row), &row["price_version"]),
            (cost(&plain), &plain["price_version"]),
            "{row}"
        );
        let sent = sent(&provider);
        match wire {
            Wire::Gemini => assert_eq!(sent, format!("/v1beta/models/{model}:generateContent")),
            Wire::Messages | Wire::Responses => assert_eq!(sent, model),
        }
    }
    // What clients make up is no label.
    let metrics = weir.metrics();
    for made_up in ["[1m]", "Deepseek", "2026-04-01", "-20251001"] {
        assert!(!metrics.contains(made_up), "{made_up}");
    }
}

#[test]
fn a_name_that_means_no_listed_model_is_unknown() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    for (wire, asked) in [
        (Wire::Messages, "claude-nothing-20251001"),
        (Wire::Messages, "claude-opus-5-5[fast]"),
        (Wire::Messages, "claude-opus-5-5-20251301"),
        (Wire::Responses, "gpt-5.5-2026-04"),
        (Wire::Messages, "my-deepseek-chat"),
        (Wire::Gemini, "gemini-3.8-flash-04-01"),
        (Wire::Messages, "claude-opus-5-5\u{202e}"),
    ] {
        let answer = weir.exchange(&ask(wire, asked, &key));
        assert_eq!(answer.status, 404, "{asked}: {}", answer.text());
    }
}

#[test]
fn a_key_for_some_models_may_use_them_by_what_names_mean_and_no_others() {
    let provider = provider();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    for (allowed, asked, status) in [
        ("deepseek-v4-pro", "deepseek-v4-pro[1m]", 200),
        ("deepseek-v4-pro", "deepseek-v9-pro[1m]", 403),
        ("deepseek-flash", "deepseek-v9-pro[1m]", 200),
        ("deepseek-flash", "deepseek-v4-pro[1m]", 403),
        ("claude-haiku-4-5", "claude-haiku-4-5-20251001", 200),
        ("claude-opus-5-5", "claude-haiku-4-5-20251001", 403),
    ] {
        let key = weir.key_with(&["--models", allowed]).text;
        let answer = weir.exchange(&ask(Wire::Messages, asked, &key));
        assert_eq!(answer.status, status, "{allowed}: {asked}: {}", answer.text());
    }
}

fn listed(name: &str, provider: &str, upstream_name: Option<&str>) -> Toml {
    let mut table = toml::Table::new();
    table.insert("name".to_owned(), name.into());
    table.insert("providers".to_owned(), Toml::Array(vec![provider.into()]));
    table.insert("free".to_owned(), true.into());
    if let Some(upstream_name) = upstream_name {
        table.insert("upstream_name".to_owned(), upstream_name.into());
    }
    Toml::Table(table)
}

#[test]
fn a_dated_or_marked_name_that_is_listed_is_a_model_of_its_own() {
    let provider = provider();
    let own = ["claude-haiku-4-5-20251001", "claude-opus-5-5[1m]"];
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set_top(
            "model",
            Toml::Array(own.map(|name| listed(name, "anthropic", None)).into()),
        )
        .start();
    let key = weir.key().text;
    for name in own {
        let answer = weir.exchange(&ask(Wire::Messages, name, &key));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(line["model"], name, "{line}");
        assert_eq!(sent(&provider), name);
    }
    // At their own price, which is none.
    assert!(weir.books(2).rows.iter().all(|row| cost(row) == 0));
}

#[test]
fn any_printable_name_can_be_listed_shown_and_asked_for() {
    const NAMES: [&str; 4] = [
        "house model (large) [q4]",
        "\u{6a21}\u{578b}/\u{3b1}:1",
        "100% \"quoted\" 'x' \\ <b>&amp;",
        "a?b#c;d+e=f",
    ];
    let provider = provider();
    let models = NAMES.map(|name| [listed(name, "anthropic", Some("up [x]"))]);
    let gemini = listed("g [1m] /%2e", "gemini", Some("up/\u{3b1} [x]"));
    let models = models.into_iter().flatten().chain([gemini]);
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set_top("model", Toml::Array(models.collect()))
        .start();
    let key = weir.key().text;
    let list = Request::get("/v1/models").header("authorization", &format!("Bearer {key}"));
    let list = weir.exchange(&list).json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    for name in NAMES {
        assert!(ids.contains(&name), "{name}: {ids:?}");
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        let shown = Request::get(&format!("/v1/models/{encoded}")).header("x-api-key", &key);
        assert_eq!(weir.exchange(&shown).json()["id"], name);
        let narrow = weir.key_with(&["--models", name]).text;
        let answer = weir.exchange(&ask(Wire::Messages, name, &narrow));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(sent(&provider), "up [x]");
        let record = weir
            .exchange(&Request::get(&format!("/web/v1/model-stability/{encoded}")))
            .json();
        assert_eq!(record["data"]["model_name"], name, "{record}");
        assert_eq!(weir.exchange(&Request::get(&format!("/status/{encoded}"))).status, 200);
    }
    let answer = weir.exchange(&ask(Wire::Gemini, "g [1m] /%2e", &key));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(sent(&provider), "/v1beta/models/up%2F%CE%B1%20%5Bx%5D:generateContent");
    // As labels they are escaped.
    assert!(
        weir.metrics()
            .contains("model=\"100% \\\"quoted\\\" 'x' \\\\ <b>&amp;\"")
    );
}

//! What is answered.

use super::*;

#[test]
fn the_summary_has_exactly_the_published_fields() {
    let answer = Service::new(counted("m")).get("/web/v1/model-stability/summary");
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        String::from_utf8_lossy(&answer.body),
        r#"{"success":true,"data":[{"model_name":"m","success_rate":99.18,"avg_latency_ms":983.9,"avg_tps":125.0,"confidence":"high"}]}"#
    );
}

#[test]
fn the_detail_has_a_point_for_each_hour_the_oldest_first() {
    let service = Service::new(counted("m"));
    let body = json(&service.get("/web/v1/model-stability/m?hours=24"));
    let fields = |value: &Json| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&body), ["success", "data"]);
    let data = &body["data"];
    assert_eq!(
        fields(data),
        ["model_name", "confidence", "summary", "series", "updated_at"]
    );
    assert_eq!(
        data["summary"],
        json!({ "success_rate": 99.18, "avg_latency_ms": 983.9, "avg_ttft_ms": 200.0, "avg_tps": 125.0 })
    );
    assert_eq!(
        (&data["model_name"], &data["confidence"]),
        (&json!("m"), &json!("high"))
    );
    assert_eq!(data["updated_at"], (NOW_MS - 1234) / 1000);
    let series = data["series"].as_array().unwrap();
    let seconds: Vec<i64> = series.iter().map(|point| point["ts"].as_i64().unwrap()).collect();
    let expected: Vec<i64> = this_hour().window().map(Hour::start_seconds).collect();
    assert_eq!(seconds, expected);
    assert_eq!(seconds.last(), Some(&((NOW_MS - HOUR_MS / 2) / 1000)));
    let point = |ts, success_rate, avg_latency_ms, avg_ttft_ms, avg_tps, confidence| {
        json!({ "ts": ts, "success_rate": success_rate, "avg_latency_ms": avg_latency_ms, "avg_ttft_ms": avg_ttft_ms,
            "avg_tps": avg_tps, "confidence": confidence })
    };
    assert_eq!(series[0], point(seconds[0], 100.0, 12.5, 0.0, 0.0, "low"));
    assert_eq!(series[1], point(seconds[1], 0.0, 0.0, 0.0, 0.0, "low"));
    assert_eq!(series[23], point(seconds[23], 99.17, 1000.0, 200.0, 125.0, "high"));
    assert_eq!(fields(&series[5]), fields(&series[0]));
}

#[test]
fn no_count_of_requests_is_in_any_answer() {
    let service = Service::new(counted("m"));
    for target in ["/web/v1/model-stability/summary", "/web/v1/model-stability/m"] {
        let answer = service.get(target);
        let all = format!("{:?}{}", answer.headers, String::from_utf8_lossy(&answer.body));
        for count in ["121", "123", "122", "requests"] {
            assert!(!all.contains(count), "{target}: {count} in {all}");
        }
    }
}

#[test]
fn models_that_are_on_and_those_that_served_are_listed() {
    let service = Service::new(counted("gone"));
    service.reads.catalogue.store(Arc::new(catalogue(&["ANTHROPIC"])));
    let body = json(&service.get("/web/v1/model-stability/summary"));
    let rows = body["data"].as_array().unwrap();
    let named = |name: &str| rows.iter().find(|row| row["model_name"] == name);
    assert_eq!(named("gone").unwrap()["confidence"], "high");
    let zeros = json!({ "model_name": "org/house:model", "success_rate": 0.0, "avg_latency_ms": 0.0, "avg_tps": 0.0,
        "confidence": "low" });
    assert_eq!(named("org/house:model"), Some(&zeros));
    assert!(
        named("claude-sonnet-5-5").is_some() && named("gpt-5.6-sol").is_none(),
        "{rows:?}"
    );
    let off = service.get("/web/v1/model-stability/gpt-5.6-sol");
    assert_eq!(
        (off.status, code(&off)),
        (StatusCode::NOT_FOUND, "model_not_found".to_owned())
    );
}

#[test]
fn a_name_may_be_encoded_and_an_alias_means_its_model() {
    let name = "org/<b>caf\u{e9} 1</b>:x";
    let service = Service::new(counted(name));
    service.reads.catalogue.store(Arc::new(catalogue(&["ANTHROPIC"])));
    for (key, model) in [
        ("org%2F%3Cb%3Ecaf%C3%A9%201%3C%2Fb%3E%3Ax", name),
        ("org/%3Cb%3Ecaf%C3%A9%201%3C/b%3E:x", name),
        ("org/house:model", "org/house:model"),
        ("org%2Fhouse%3Amodel", "org/house:model"),
        ("house@alias", "org/house:model"),
    ] {
        let answer = service.get(&format!("/web/v1/model-stability/{key}"));
        assert_eq!(answer.status, StatusCode::OK, "{key}");
        assert_eq!(json(&answer)["data"]["model_name"], model, "{key}");
        let page = service.get(&format!("/status/{key}"));
        assert_eq!(page.status, StatusCode::OK, "{key}");
        assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header(&page, "content-security-policy"), page::CSP);
        assert_eq!(header(&page, "referrer-policy"), "no-referrer");
    }
}

#[test]
fn every_refusal_has_the_documented_shape_and_repeats_nothing() {
    let service = Service::new(counted("m"));
    for (method, target, status, expected) in [
        (
            Method::GET,
            "/web/v1/model-stability/summary?hours=48",
            400,
            "hours_not_supported",
        ),
        (
            Method::GET,
            "/web/v1/model-stability/m?hours=",
            400,
            "hours_not_supported",
        ),
        (
            Method::GET,
            "/web/v1/model-stability/unknown?hours=0",
            400,
            "hours_not_supported",
        ),
        (
            Method::GET,
            "/web/v1/model-stability/%3Cscript%3E",
            404,
            "model_not_found",
        ),
        (Method::GET, "/web/v1/model-stability/", 404, "model_not_found"),
        (Method::GET, "/web/v1/model-stability/%ff", 404, "model_not_found"),
        (Method::HEAD, "/status/%3Cscript%3E", 404, "model_not_found"),
        (
            Method::POST,
            "/web/v1/model-stability/summary",
            405,
            "method_not_allowed",
        ),
        (
            Method::DELETE,
            "/web/v1/model-stability/unknown?hours=1",
            405,
            "method_not_allowed",
        ),
        (Method::PUT, "/status", 405, "method_not_allowed"),
    ] {
        let answer = service.ask(&method, target, &[]).unwrap();
        assert_eq!(
            (answer.status.as_u16(), code(&answer)),
            (status, expected.to_owned()),
            "{target}"
        );
        assert_eq!(header(&answer, "content-type"), "application/json; charset=utf-8");
        assert_eq!(header(&answer, "cache-control"), "no-store");
        assert_eq!(header(&answer, "access-control-allow-origin"), "*");
        assert_eq!(
            header(&answer, "allow") == "GET, HEAD, OPTIONS",
            status == 405,
            "{target}"
        );
        assert!(!String::from_utf8_lossy(&answer.body).contains("script"), "{target}");
    }
    let long = format!("/web/v1/model-stability/{}", "%41".repeat(100_000));
    assert_eq!(code(&service.get(&long)), "model_not_found");
    assert_eq!(code(&PublicService::not_found()), "path_not_found");
    assert!(service.ask(&Method::GET, "/v1/models", &[]).is_none());
}

#[test]
fn before_the_first_read_it_says_when_to_come_again() {
    let service = Service::new(BTreeMap::new());
    service.reads.snapshot.store(None);
    for target in [
        "/web/v1/model-stability/summary",
        "/web/v1/model-stability/m",
        "/status",
        "/status/m",
    ] {
        let answer = service.get(target);
        assert_eq!((answer.status.as_u16(), code(&answer)), (503, "not_ready".to_owned()));
        assert_eq!(header(&answer, "retry-after"), "5");
    }
    assert_eq!(service.get("/web/v1/openapi.json").status, StatusCode::OK);
    let empty = Snapshot {
        read_at_ms: NOW_MS,
        buckets: BTreeMap::new(),
    };
    service.reads.snapshot.store(Some(Arc::new(empty)));
    assert_eq!(service.get("/status").status, StatusCode::OK);
}

#[test]
fn a_client_that_asks_too_often_is_told_how_long_to_wait_and_others_are_not() {
    let service = Service::limited(30, 2, BTreeMap::new());
    let summary = "/web/v1/model-stability/summary";
    for _ in 0..2 {
        assert_eq!(service.get(summary).status, StatusCode::OK);
    }
    let refused = service.get(summary);
    assert_eq!(
        (refused.status.as_u16(), code(&refused)),
        (429, "rate_limited".to_owned())
    );
    assert_eq!(header(&refused, "retry-after"), "2");
    for (method, target) in [
        (Method::OPTIONS, summary),
        (Method::POST, "/status"),
        (Method::GET, "/web/v1/openapi.json"),
    ] {
        assert_eq!(
            service.ask(&method, target, &[]).unwrap().status,
            429,
            "one limit for all"
        );
    }
    let headers = HeaderMap::from_iter([(
        header::HeaderName::from_static("x-forwarded-for"),
        HeaderValue::from_static("192.0.2.1"),
    )]);
    let of = |peer: [u8; 4]| {
        let ask = PublicRequest {
            method: &Method::GET,
            path: summary,
            query: None,
            headers: &headers,
            peer: IpAddr::from(peer),
            now_ms: NOW_MS,
            now: service.start,
        };
        service.public.answer(&ask).unwrap().status.as_u16()
    };
    assert_eq!(of([192, 0, 2, 2]), 200, "another address, whatever it claims");
    assert_eq!(of([10, 0, 0, 1]), 429, "a trusted proxy speaks for the first one");
}

#[test]
fn answers_are_rendered_once_for_a_snapshot_a_catalogue_and_an_hour() {
    let service = Service::new(counted("m"));
    let first = service.get("/web/v1/model-stability/m");
    for _ in 0..100 {
        let again = service.get("/web/v1/model-stability/m");
        assert_eq!(
            again.body.as_ptr(),
            first.body.as_ptr(),
            "the same bytes in the same place"
        );
    }
    let packed = || {
        service
            .get_with("/status", &[("accept-encoding", "gzip;q=1, identity;q=0")])
            .body
            .as_ptr()
    };
    assert_eq!(packed(), packed());
    let snapshot = Snapshot {
        read_at_ms: NOW_MS,
        buckets: counted("m"),
    };
    service.reads.snapshot.store(Some(Arc::new(snapshot)));
    let later = service.get("/web/v1/model-stability/m");
    assert_eq!(json(&later)["data"]["updated_at"], NOW_MS / 1000);
    service.reads.catalogue.store(Arc::new(catalogue(&["ANTHROPIC"])));
    assert_eq!(service.get("/web/v1/model-stability/org/house:model").status, 200);
    let next = PublicRequest {
        method: &Method::GET,
        path: "/web/v1/model-stability/m",
        query: None,
        headers: &HeaderMap::new(),
        peer: IpAddr::from([192, 0, 2, 1]),
        now_ms: NOW_MS + HOUR_MS / 2,
        now: service.start,
    };
    let series = json(&service.public.answer(&next).unwrap())["data"]["series"].clone();
    assert_eq!(series[23]["ts"], this_hour().plus(1).start_seconds());
    assert_eq!(series[22]["avg_latency_ms"], 1000.0);
}

#[test]
fn a_preflight_is_answered_for_every_site() {
    let answer = Service::new(BTreeMap::new())
        .ask(
            &Method::OPTIONS,
            "/web/v1/model-stability/summary",
            &[("origin", "https://example.org")],
        )
        .unwrap();
    assert_eq!((answer.status, answer.has_body()), (StatusCode::NO_CONTENT, false));
    assert_eq!(header(&answer, "access-control-allow-origin"), "*");
    assert_eq!(header(&answer, "access-control-allow-methods"), "GET, HEAD");
    assert_eq!(header(&answer, "access-control-allow-headers"), "*");
}

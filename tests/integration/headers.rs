//! What the provider and the client see of each other's headers.

use crate::harness::answer::LEAST;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::request_id_header;
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{RecordingProvider, Request, Weir};

/// How each provider wants its credential.
fn credential_of(wire: Wire) -> (&'static str, String) {
    match wire {
        Wire::Messages => ("x-api-key", PROVIDER_KEY.to_owned()),
        Wire::Responses => ("authorization", format!("Bearer {PROVIDER_KEY}")),
        Wire::Gemini => ("x-goog-api-key", PROVIDER_KEY.to_owned()),
    }
}

#[test]
fn the_provider_gets_its_own_credential_and_no_other() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let (name, value) = credential_of(wire);
        for request in [
            wire.request(&key, "hi"),
            // Naming credentials as hop-by-hop must neither lose the client's nor the provider's.
            wire.request(&key, "hi")
                .header("connection", "x-api-key, authorization, x-goog-api-key"),
            wire.request(&key, "hi").header("proxy-authorization", "Basic eDp5"),
        ] {
            assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
            let got = provider.last();
            assert_eq!(got.header_values(name), [value.as_str()], "{wire:?}");
            for other in [
                "x-api-key",
                "authorization",
                "x-goog-api-key",
                "x-genai-api-key",
                "proxy-authorization",
            ] {
                assert!(
                    other == name || got.header(other).is_none(),
                    "{wire:?}: {other} reached the provider"
                );
            }
            assert!(
                !String::from_utf8_lossy(&got.head).contains(&key),
                "{wire:?}: the client's key reached the provider"
            );
        }
    }
}

#[test]
fn hop_by_hop_and_private_headers_stay_here() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let names = [
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "proxy-connection",
        "x-nominated",
        "expect",
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-real-ip",
        "cookie",
    ];
    for wire in ALL_WIRES {
        let request = wire
            .request(&key, "hi")
            .header("connection", "keep-alive, x-nominated")
            .header("keep-alive", "timeout=5")
            .header("x-nominated", "1")
            .header("te", "trailers")
            .header("trailer", "x-later")
            .header("proxy-connection", "keep-alive")
            .header("via", "1.1 somewhere")
            .header("forwarded", "for=192.0.2.7")
            .header("x-forwarded-for", "192.0.2.7")
            .header("x-real-ip", "192.0.2.7")
            .header("cookie", "session=1");
        assert_eq!(weir.exchange(&request).status, 200);
        let got = provider.last();
        let host = provider.address().to_string();
        assert_eq!(got.header_values("host"), [host.as_str()], "{wire:?}");
        assert_eq!(got.header_values("accept-encoding"), ["identity"], "{wire:?}");
        for name in names {
            assert!(
                got.header(name).is_none() || name == "connection" && got.header(name) == Some("keep-alive"),
                "{wire:?}: {name}"
            );
        }
    }
}

/// What a client's connection names, and a wish for another protocol, end here over both versions.
#[test]
fn a_wish_for_another_protocol_and_what_connection_names_end_here() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let many: Vec<String> = (0..40).map(|number| format!("x-hop-{number}")).collect();
    for wire in ALL_WIRES {
        let plain = wire.request(&key, "hi");
        let handshake = |request: Request| {
            request
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-protocol", "chat")
                .header("Sec_WebSocket_Extensions", "permessage-deflate")
        };
        let named = |connection: &str| handshake(plain.clone()).header("connection", connection);
        let mut all = named(&["upgrade", "keep-alive", "x-api-key", &many.join(",")].join(", "));
        for name in &many {
            all = all.header(name, "1");
        }
        for request in [
            named("upgrade").header("upgrade", "websocket"),
            named("Upgrade, X-Nominated, HTTP2-Settings")
                .header("upgrade", "h2c, websocket")
                .header("x-nominated", "1")
                .header("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
            named("host, content-length, transfer-encoding, content-type, :path, \"x\", ,")
                .header("upgrade", "WebSocket"),
            named("x-forwarded-for, x-forwarded-proto").header("x-forwarded-for", "192.0.2.7"),
            all.header("upgrade", "h2c"),
        ] {
            let answer = weir.exchange(&request);
            assert_eq!(answer.status, 200, "{wire:?}: {:?}: {}", request.headers, answer.text());
            assert_passed_plain(wire, &provider, &plain);
        }
        let over_http2 = h2c::exchange(
            weir.gateway,
            &handshake(plain.clone()),
            EndStream::OnLastFrame,
            Length::Said,
        );
        assert_eq!(over_http2.status, 200, "{wire:?}");
        assert_passed_plain(wire, &provider, &plain);
    }
}

/// The last request reached the provider whole, and without a word of another protocol.
#[track_caller]
fn assert_passed_plain(wire: Wire, provider: &RecordingProvider, plain: &Request) {
    let got = provider.last();
    assert_eq!(got.body, plain.body, "{wire:?}");
    let (name, value) = credential_of(wire);
    assert_eq!(got.header_values(name), [value.as_str()], "{wire:?}");
    let head = String::from_utf8_lossy(&got.head)
        .to_ascii_lowercase()
        .replace('_', "-");
    for word in [
        "upgrade",
        "websocket",
        "http2-settings",
        "x-nominated",
        "x-hop-",
        "\r\ntransfer-encoding",
    ] {
        assert!(!head.contains(word), "{wire:?}: {word} in {head}");
    }
}

/// A provider that switches protocols is a broken one, also for a client that has asked for it: no byte goes through.
#[test]
fn a_providers_switch_of_protocols_is_502_and_never_a_tunnel() {
    let switching = RecordingProvider::start(|_, answer| {
        answer.raw(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\ntunnelled");
    });
    let weir = Weir::start(&switching.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let plain = wire.request(&key, "hi");
        let asking = plain
            .clone()
            .header("connection", "upgrade")
            .header("upgrade", "websocket");
        for request in [&plain, &asking] {
            let mut client = weir.connect();
            client.write(&request.bytes(Upload::Length));
            client.write(b"tunnel me");
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 502, "{wire:?}: {}", answer.text());
            assert!(!answer.text().contains("tunnelled"), "{}", answer.text());
        }
        let answer = h2c::exchange(weir.gateway, &plain, EndStream::OnLastFrame, Length::Said);
        assert_eq!(answer.status, 502, "{wire:?} over HTTP/2");
    }
    let sent = ALL_WIRES.map(|wire| wire.request(&key, "hi").body);
    for request in switching.requests() {
        assert!(
            sent.contains(&request.body),
            "{}",
            String::from_utf8_lossy(&request.body)
        );
        assert!(request.header("upgrade").is_none());
    }
}

/// Headers that name or choose an account, or a way around what weir asks for, in the spellings that servers read.
const NOT_FORWARDED: [&str; 29] = [
    "OpenAI-Organization",
    "openai-project",
    "openai_organization",
    "OpenAI_Project",
    "anthropic-workspace-id",
    "anthropic_workspace_id",
    "anthropic-organization-id",
    "anthropic-user-profile-id",
    "x-goog-user-project",
    "X_Goog_User_Project",
    "x-goog-quota-user",
    "x-goog-iam-authorization-token",
    "X-DashScope-WorkSpace",
    "chatgpt-account-id",
    "x-openai-account-routing-override",
    "x-goog-authenticated-user-email",
    "x-amz-security-token",
    "anthropic-auth-token",
    "set-cookie",
    "Cookie2",
    "x-rewrite-url",
    // What a provider may take for a credential, spelt as some servers read it.
    "x_api_key",
    "X_Goog_Api_Key",
    "x_genai_api_key",
    "api_key",
    "proxy_authorization",
    "x-auth-token",
    "x-access-token",
    "x_forwarded_for",
];

#[test]
fn nothing_that_chooses_the_operators_organisation_project_or_user_passes() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let queries = [
        "access_token=t",
        "oauth_token=t",
        "access%5Ftoken=t",
        "$key=t",
        "%24key=t",
        "api_key=t",
        "x-goog-api-key=t",
        "$userProject=t",
        "userProject=t",
        "organization=t",
        "project_id=t",
        "GroupId=t",
    ];
    for wire in ALL_WIRES {
        let request = NOT_FORWARDED
            .iter()
            .fold(wire.request(&key, "hi"), |request, name| request.header(name, "theirs"));
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
        let got = provider.last();
        for name in NOT_FORWARDED {
            let (name, value) = (name.to_ascii_lowercase(), "theirs");
            assert_ne!(got.header(&name), Some(value), "{wire:?}: {name} reached the provider");
        }
        for query in queries {
            let mut request = wire.request(&key, "hi");
            request.target = format!("{}?{query}", request.target);
            assert_eq!(weir.exchange(&request).status, 200, "{wire:?} {query}");
            let target = provider.last().target;
            assert!(!target.contains('?'), "{wire:?} {query}: {target}");
        }
    }
    for wire in [Wire::Messages, Wire::Responses] {
        let mut request = wire.request(&key, "hi").header("x-stainless-lang", "js");
        request.target = format!("{}?beta=true&access_token=t&a=b%20c", request.target);
        assert_eq!(weir.exchange(&request).status, 200);
        let got = provider.last();
        assert!(
            got.target.ends_with("?beta=true&a=b%20c"),
            "the rest stays: {}",
            got.target
        );
        assert_eq!(got.header("x-stainless-lang"), Some("js"));
    }
}

#[test]
fn the_callers_own_key_passes_under_no_name() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let twice = encoded.replace('%', "%25");
    let random = &key[key.len() - 49..key.len() - 6];
    let values = [
        key.clone(),
        format!("Token {key}; more"),
        format!("https://example.com/?a=b&c={encoded}#d"),
        format!("x={twice}"),
        random.to_owned(),
    ];
    for wire in ALL_WIRES {
        for value in &values {
            let request = wire
                .request(&key, "hi")
                .header("user-agent", value)
                .header("x-anything", value)
                .header("x-kept", "kept");
            assert_eq!(weir.exchange(&request).status, 200, "{wire:?} {value}");
            let got = provider.last();
            assert_eq!(
                (got.header("x-anything"), got.header("user-agent")),
                (None, None),
                "{wire:?} {value}"
            );
            assert_eq!(got.header("x-kept"), Some("kept"), "{wire:?}");
        }
        let named = wire.request(&key, "hi").header(&key, "1");
        assert_eq!(weir.exchange(&named).status, 200);
        let head = String::from_utf8_lossy(&provider.last().head).to_ascii_lowercase();
        assert!(!head.contains(&random.to_ascii_lowercase()), "{wire:?}: as a name");
        for query in [
            format!("anything={key}"),
            format!("{key}=1"),
            key.clone(),
            format!("a={encoded}"),
            format!("a={twice}"),
            format!("KEY={key}"),
            format!("api_key={key}"),
        ] {
            let mut request = wire.request(&key, "hi");
            request.target = format!("{}?alt=json&{query}", request.target);
            assert_eq!(weir.exchange(&request).status, 200, "{wire:?} {query}");
            let target = provider.last().target;
            assert!(target.ends_with("?alt=json"), "{wire:?}: {target}");
        }
    }
}

#[test]
fn the_client_offer_of_encodings_never_reaches_the_provider() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let request = wire
            .request(&key, "hi")
            .header("accept-encoding", "gzip, br")
            .header("accept-encoding", "zstd");
        assert_eq!(weir.exchange(&request).status, 200);
        assert_eq!(
            provider.last().header_values("accept-encoding"),
            ["identity"],
            "{wire:?}"
        );
    }
}

#[test]
fn the_protocol_version_is_defaulted_only_when_absent_and_betas_pass() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut plain = Wire::Messages.request(&key, "hi");
    plain.headers.retain(|(name, _)| name != "anthropic-version");
    assert_eq!(weir.exchange(&plain).status, 200);
    assert_eq!(provider.last().header_values("anthropic-version"), ["2023-06-01"]);
    for version in ["2023-06-01", "2026-10-21", "some-day"] {
        let request = plain
            .clone()
            .header("anthropic-version", version)
            .header("anthropic-beta", "one-2026-01-01, two-2026-01-01")
            .header("Anthropic-Beta", "three")
            .header("x-stainless-timeout", "NOT_GIVEN");
        assert_eq!(weir.exchange(&request).status, 200);
        let got = provider.last();
        assert_eq!(got.header_values("anthropic-version"), [version]);
        assert_eq!(
            got.header_values("anthropic-beta").join(", "),
            "one-2026-01-01, two-2026-01-01, three"
        );
        assert_eq!(got.header_values("x-stainless-timeout"), ["NOT_GIVEN"]);
    }
}

#[test]
fn answers_keep_what_clients_act_on_and_lose_what_is_the_providers_business() {
    let provider = RecordingProvider::start(|_, answer| {
        let headers = [
            ("content-type", "application/json"),
            ("retry-after", "7"),
            ("retry-after-ms", "7000"),
            ("x-should-retry", "true"),
            ("anthropic-ratelimit-requests-remaining", "11"),
            ("x-ratelimit-remaining-tokens", "12"),
            ("openai-processing-ms", "13"),
            ("x-ratelimit-limit-project-tokens", "14"),
            ("anthropic-organization-id", "org-1"),
            ("openai-organization", "org-2"),
            ("openai-project", "proj_1"),
            ("x-goog-user-project", "project-1"),
            ("x-account-email", "operator@example.com"),
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("server", "theirs"),
            ("via", "1.1 theirs"),
            ("cf-ray", "1"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ];
        answer.full(429, &headers, b"{}");
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(answer.status, 429);
        for (name, value) in [
            ("retry-after", "7"),
            ("retry-after-ms", "7000"),
            ("x-should-retry", "true"),
            ("anthropic-ratelimit-requests-remaining", "11"),
            ("x-ratelimit-remaining-tokens", "12"),
            ("openai-processing-ms", "13"),
            ("x-ratelimit-limit-project-tokens", "14"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{wire:?}");
        }
        for name in [
            "set-cookie",
            "via",
            "cf-ray",
            "x-hop",
            "anthropic-organization-id",
            "openai-organization",
            "openai-project",
            "x-goog-user-project",
            "x-account-email",
        ] {
            assert_eq!(answer.header(name), None, "{wire:?}: {name}");
        }
        assert!(
            answer.header("server").is_none_or(|value| value != "theirs"),
            "{wire:?}"
        );
    }
}

#[test]
fn every_answer_has_one_request_id_and_no_two_are_alike() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut ids = std::collections::BTreeSet::new();
    for wire in ALL_WIRES {
        for request in [
            wire.request(&key, "hi"),
            wire.without_credential("hi"),
            wire.request(&key, "hi").body(b"{"),
        ] {
            let answer = weir.exchange(&request);
            let name = request_id_header(wire);
            let values: Vec<_> = answer.headers.iter().filter(|(found, _)| found == name).collect();
            assert_eq!(values.len(), 1, "{wire:?} {}", answer.status);
            assert!(ids.insert(values[0].1.clone()), "{wire:?}: an id came twice");
            assert_eq!(weir.access_line(&values[0].1)["status"], answer.status);
        }
    }
}

#[test]
fn head_blocks_beyond_the_limits_are_431() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let long = wire.request(&key, "hi").header("x-long", &"y".repeat(70_000));
        let many = (0..120).fold(wire.request(&key, "hi"), |request, number| {
            request.header(&format!("x-{number}"), "1")
        });
        for request in [long, many] {
            let mut client = weir.connect();
            client.write(&request.bytes(Upload::Length));
            assert_eq!(client.response_to("POST").status, 431, "{wire:?}");
        }
    }
}

#[test]
fn nothing_before_the_answers_head_passes_and_no_reason_of_the_providers() {
    let provider = RecordingProvider::start(|_, answer| {
        for status in [100, 102, 103] {
            let head = format!(
                "HTTP/1.1 {status} acme-corp\r\nset-cookie: a=b\r\nx-account: {PROVIDER_KEY}\r\nlink: </acme>\r\n\r\n"
            );
            answer.raw(head.as_bytes());
        }
        answer.raw(b"HTTP/1.1 200 acme-corp\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
        answer.chunk(LEAST);
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.request(&key, "hi").bytes(Upload::Length));
        let head = client.head_to("POST");
        assert_eq!(
            (head.status, head.reason.as_str()),
            (200, "OK"),
            "{wire:?}: {:?}",
            head.headers
        );
        assert_eq!(client.rest(head).body, LEAST.as_bytes());
        client.write(
            &wire
                .request(&key, "hi")
                .header("expect", "100-continue")
                .bytes(Upload::Length),
        );
        let first = client.head_to("POST");
        assert_eq!((first.status, first.reason.as_str()), (100, "Continue"), "{wire:?}");
        assert!(first.headers.is_empty(), "{wire:?}: {:?}", first.headers);
        let head = client.head_to("POST");
        assert_eq!((head.status, head.reason.as_str()), (200, "OK"), "{wire:?}");
        assert_eq!(client.rest(head).body, LEAST.as_bytes());
    }
}

#[test]
fn reasons_are_the_standards_also_of_errors() {
    let provider = RecordingProvider::start(|_, answer| answer.full(422, &[("content-type", "text/plain")], b"no"));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.request(&key, "hi").bytes(Upload::Length));
        let head = client.head_to("POST");
        assert_eq!(
            (head.status, head.reason.as_str()),
            (422, "Unprocessable Entity"),
            "{wire:?}"
        );
    }
}

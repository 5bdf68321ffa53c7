//! The admin API over TCP: for clients with a certificate of the configured authority, and for nobody else.

use std::net::SocketAddr;

use crate::harness::certificates::{Authority, BOTH_VERSIONS, Kind, Offer};
use crate::harness::tools::{SCHEMATHESIS, python, rounds, schemathesis, skip};
use crate::harness::weir::ACCOUNT;
use crate::harness::{Client, Request, Weir, WeirBuilder, https, wait_until};

fn started(servers: &Authority, operators: &Authority) -> (Weir, SocketAddr) {
    let files = servers.files("admin", &["admin.test", "127.0.0.1"], Kind::Ecdsa);
    let weir = WeirBuilder::new()
        .set("admin.listen", "127.0.0.1:0")
        .set("console.listen", "127.0.0.1:0")
        .set("sign_in.enabled", true)
        .set("admin.tls.client_ca_file", operators.ca_file().to_str().unwrap())
        .set("admin.tls.certificate", vec![files.setting()])
        .start();
    let text = std::fs::read_to_string(weir.folder().join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&text).unwrap();
    let address = ready["admin_tcp"].as_str().unwrap().parse().unwrap();
    (weir, address)
}

/// The answer's status; `None`: the connection was refused, in the handshake or right behind it.
fn asked(servers: &Authority, offer: Offer, address: SocketAddr, request: &Request) -> Option<u16> {
    let mut connection = https::connect(&servers.client(offer), "admin.test", address).ok()?;
    connection
        .client
        .write(&request.bytes(crate::harness::request::Upload::Length));
    Some(connection.client.try_head_to(&request.method)?.status)
}

#[test]
fn only_holders_of_a_certificate_get_in_and_the_audit_record_names_them() {
    let [servers, operators, others] = [Authority::new(), Authority::new(), Authority::new()];
    let (weir, address) = started(&servers, &operators);
    let list = Request::get("/v1/accounts");
    for version in BOTH_VERSIONS {
        let showing = |certificate| Offer {
            versions: vec![version],
            certificate,
            ..Offer::default()
        };
        let of = |authority: &Authority| Some(authority.files("alice", &["alice"], Kind::Ecdsa));
        let ended = Some(operators.files_until("ended", &["ended"], Kind::Ecdsa, 2021));
        assert_eq!(
            asked(&servers, showing(of(&operators)), address, &list),
            Some(200),
            "{version:?}"
        );
        for (who, certificate) in [
            ("nobody", None),
            ("of another authority", of(&others)),
            ("of the servers' authority", of(&servers)),
            ("ended", ended),
        ] {
            assert_eq!(
                asked(&servers, showing(certificate), address, &list),
                None,
                "{who}, {version:?}"
            );
        }
    }
    let mut plain = Client::connect(address);
    plain.write(b"GET /v1/accounts HTTP/1.1\r\nhost: weir\r\n\r\n");
    assert!(plain.try_head_to("GET").is_none());

    let alice = Offer {
        certificate: Some(operators.files("alice", &["alice"], Kind::Ecdsa)),
        ..Offer::default()
    };
    let create = Request::post("/v1/accounts").json(r#"{"id": "over-tcp", "balance_usd": "1"}"#);
    assert_eq!(asked(&servers, alice, address, &create), Some(201));
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!(line["operation"], "account.create");
    let holder = line["peer_certificate"].as_str().unwrap();
    assert!(holder.starts_with("CN=alice sha256:"), "{holder}");
    assert_eq!(line["peer_uid"], serde_json::Value::Null);
}

#[test]
fn the_admin_api_does_what_its_description_says() {
    let Some(python) = python(SCHEMATHESIS) else {
        skip!("{SCHEMATHESIS} is not there: tests/run makes it");
    };
    let [servers, operators] = [Authority::new(), Authority::new()];
    let (weir, address) = started(&servers, &operators);
    let alice = operators.files("alice", &["alice"], Kind::Ecdsa);
    // What is there, so that its questions have answers.
    let key = weir.key().id;
    // A body that is too large is refused before it is read.
    let there = format!(
        "[checks.negative_data_rejection]\nexpected-statuses = [\"4xx\", 503]\n[parameters]\n\"path.id\" = \"{ACCOUNT}\"\n\"path.name\" = \"anthropic\"\n[[operations]]\ninclude-path-regex = \"^/v1/keys/\"\n\
         parameters = {{ \"path.id\" = \"{key}\" }}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), there).unwrap();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let words = [
        format!("https://{address}/v1/openapi.json"),
        format!("--tls-verify={}", text(&servers.ca_file())),
        format!("--request-cert={}", text(&alice.chain)),
        format!("--request-cert-key={}", text(&alice.key)),
        format!("--max-examples={}", rounds(2, 100)),
        "--phases=fuzzing".to_owned(),
        // Another process would take the place of the one that is asked.
        "--exclude-path=/v1/upgrade".to_owned(),
        // What a value means can be wrong where its form is right: an end in the past, a credit of nothing.
        "--exclude-checks=positive_data_acceptance".to_owned(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (passed, said) = schemathesis(&python, folder.path(), &words);
    assert!(passed, "{said}");
}

#[test]
fn an_exchanged_authority_takes_effect_at_once_also_for_clients_that_come_back() {
    let [servers, old, new] = [Authority::new(), Authority::new(), Authority::new()];
    let (_weir, address) = started(&servers, &old);
    let list = Request::get("/v1/accounts");
    let [before, after] = [&old, &new].map(|authority| {
        let certificate = Some(authority.files("alice", &["alice"], Kind::Ecdsa));
        servers.client(Offer {
            certificate,
            ..Offer::default()
        })
    });
    let status = |tls| {
        let mut connection = https::connect(tls, "admin.test", address).ok()?;
        connection
            .client
            .write(&list.bytes(crate::harness::request::Upload::Length));
        Some(connection.client.try_head_to("GET")?.status)
    };
    assert_eq!((status(&before), status(&after)), (Some(200), None));
    std::fs::copy(new.ca_file(), old.ca_file()).unwrap();
    wait_until("the new authority to count", || status(&after) == Some(200));
    assert_eq!(status(&before), None, "no ticket lets it in");
}

#[test]
fn connections_that_never_come_to_a_request_give_way_to_operators() {
    let [servers, operators] = [Authority::new(), Authority::new()];
    let (_weir, address) = started(&servers, &operators);
    // More than are served at a time.
    let silent: Vec<Client> = (0..70).map(|_| Client::connect(address)).collect();
    for _ in 0..3 {
        let alice = Offer {
            certificate: Some(operators.files("alice", &["alice"], Kind::Ecdsa)),
            ..Offer::default()
        };
        assert_eq!(
            asked(&servers, alice, address, &Request::get("/v1/accounts")),
            Some(200)
        );
    }
    drop(silent);
}

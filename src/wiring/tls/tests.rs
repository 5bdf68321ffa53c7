//! Tests of `wiring::tls`.

use super::*;
use crate::front::tls::tests::certificate::{Kind, certificate};

const DAY: i64 = 86_400;

#[test]
fn an_operator_is_warned_before_a_certificate_ends_and_before_it_begins() {
    let certificate = certificate(&["api.test"], Kind::Ecdsa);
    let (from, until) = (certificate.valid_from(), certificate.valid_until());
    let identities = ByListener {
        gateway: Some(TlsIdentity {
            certificates: vec![certificate],
            clients: AcceptedClients::All,
        }),
        ..ByListener::default()
    };
    let warned = |now| warnings(&identities, now);
    let what = "[gateway] certificate for api.test";
    assert_eq!(warned(from), Vec::<String>::new());
    assert_eq!(warned(until - RENEWED_BEFORE), Vec::<String>::new());
    let soon = format!("{what} expires at 2036-01-01T00:00:00Z: replace the certificate before then");
    assert_eq!(warned(until - RENEWED_BEFORE + 1), [soon.as_str()]);
    assert_eq!(warned(until), [soon]);
    assert_eq!(
        warned(until + 1),
        [format!(
            "{what} expired at 2036-01-01T00:00:00Z, so clients refuse it: replace the certificate"
        )]
    );
    let early = format!("{what} is valid only from 2026-01-01T00:00:00Z on: clients refuse it until then");
    assert_eq!(warned(from - DAY), [early]);
}

#[test]
fn every_file_of_a_listener_is_watched_and_every_broken_one_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[gateway.tls]\ncertificate = [{ chain = \"a.pem\", key = \"file:a.key\" }]\n\
                [stability.tls]\ncertificate = [{ chain = \"b.pem\", key = \"env:WEIR_TEST_NO_SUCH_KEY\" }]\n\
                [admin]\nlisten = \"127.0.0.1:0\"\n\
                [admin.tls]\nclient_ca_file = \"ca.pem\"\ncertificate = [{ chain = \"a.pem\", key = \"file:a.key\" }]\n";
    fs::write(folder.path().join("b.pem"), "").unwrap();
    fs::write(folder.path().join("ca.pem"), "no authority").unwrap();
    let file = folder.path().join("weir.toml");
    fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap();
    let names: Vec<PathBuf> = files(&config);
    for name in ["a.pem", "a.key", "b.pem", "ca.pem"] {
        assert!(names.contains(&folder.path().join(name)), "{name}: {names:?}");
    }
    let told: Vec<(Option<usize>, String)> = read(&config)
        .expect_err("all are broken")
        .into_iter()
        .map(|error| (error.line, error.key.unwrap()))
        .collect();
    let expected = [
        (2, "gateway.tls.certificate.1"),
        (4, "stability.tls.certificate.1"),
        (8, "admin.tls.client_ca_file"),
        (9, "admin.tls.certificate.1"),
    ];
    assert_eq!(told, expected.map(|(line, key)| (Some(line), key.to_owned())));
}

//! Who is reached, and with how much proof of who it is.

use crate::{
    config::log::PostgresTls,
    domain::keys::secret::Secret,
    sinks::{
        Sink,
        contract::node,
        postgres::{PostgresLog, PostgresSettings},
    },
};

use super::{ready, server};

#[tokio::test]
async fn tls_proves_as_much_as_is_demanded() {
    let Some(mut server) = ready().await else { return };
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    server.with_tls(&own.cert.pem(), &own.signing_key.serialize_pem()).await;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (right, wrong) = (own.cert.pem(), other.cert.pem());
    let (base, urls) = (
        server.own(),
        ["localhost", "127.0.0.1"].map(|host| (host, server.tcp_url(host))),
    );
    let tried = async |demand, host: &str, ca: &str| {
        let (_, url) = urls.iter().find(|(name, _)| *name == host).unwrap();
        let settings = PostgresSettings {
            url: Secret::new(url.as_str()),
            tls: demand,
            ca: Some(ca.as_bytes().to_vec()),
            ..base.clone()
        };
        PostgresLog::new(settings).unwrap().watermark(&node(1)).await.is_ok()
    };
    for (demand, host, ca, goes) in [
        (PostgresTls::VerifyFull, "localhost", &right, true),
        (PostgresTls::VerifyFull, "127.0.0.1", &right, false),
        (PostgresTls::VerifyFull, "localhost", &wrong, false),
        (PostgresTls::VerifyCa, "127.0.0.1", &right, true),
        (PostgresTls::VerifyCa, "127.0.0.1", &wrong, false),
        (PostgresTls::Require, "127.0.0.1", &wrong, true),
        (PostgresTls::Disable, "127.0.0.1", &wrong, true),
    ] {
        assert_eq!(tried(demand, host, ca).await, goes, "{demand:?} {host}");
    }
    // A server without TLS is not talked to where TLS is demanded.
    server.sql("ALTER SYSTEM SET ssl = off").await;
    server.kill();
    server.restart().await;
    assert!(!tried(PostgresTls::Require, "127.0.0.1", &right).await);
}

#[test]
fn a_connection_string_is_never_repeated() {
    for wrong in [
        "postgres://weir:hunter2@h:port/db",
        "hunter2",
        "host=h password='hunter2",
    ] {
        let Err(error) = PostgresLog::new(server::settings(wrong)) else {
            panic!("{wrong} is taken");
        };
        assert!(
            !error.to_string().contains("hunter2") && error.to_string().contains("url"),
            "{error}"
        );
    }
    let settings = server::settings("postgres://weir:hunter2@h/db");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

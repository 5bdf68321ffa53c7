//! Tests of the settings of TLS.

use super::*;
use crate::config::gateway::CertificateConfig;

const GATEWAY_CERTIFICATE: &str = "[[gateway.tls.certificate]]\nchain = \"c.pem\"\nkey = \"file:c.key\"\n";

#[test]
fn certificates_are_named_in_order_and_turn_tls_on() {
    assert!(!parse("").unwrap().gateway.tls.tls.is_on());
    let second = GATEWAY_CERTIFICATE.replace("file:c.key", "credential:c");
    let tls = parse(&format!("{GATEWAY_CERTIFICATE}{second}"))
        .unwrap()
        .gateway
        .tls
        .tls;
    let chain = PathBuf::from("/etc/weir/c.pem");
    let certificate = |key| CertificateConfig {
        chain: chain.clone(),
        key,
    };
    let keys = [
        SecretRef::File("/etc/weir/c.key".to_owned()),
        SecretRef::Credential("c".to_owned()),
    ];
    assert_eq!(tls.certificates, keys.map(certificate));
}

#[test]
fn a_certificate_that_is_not_whole_is_told_with_its_line() {
    let text = format!("{GATEWAY_CERTIFICATE}[[gateway.tls.certificate]]\nchain = \"d.pem\"\n");
    assert_eq!(
        one_error(&text),
        "weir.toml:4: key `gateway.tls.certificate.2.key` is missing"
    );
    let text = GATEWAY_CERTIFICATE.replace("file:c.key", "/etc/private.key");
    assert_eq!(
        one_error(&text),
        "weir.toml:3: key `gateway.tls.certificate.1.key`: expected a reference to a secret: env:NAME, file:PATH or credential:NAME"
    );
}

#[test]
fn the_admin_api_over_tcp_has_tls_and_asks_for_certificates_in_any_case() {
    let listen = "[admin]\nlisten = \"127.0.0.1:9465\"\n";
    let certificate = "[[admin.tls.certificate]]\nchain = \"c.pem\"\nkey = \"file:c.key\"\n";
    assert!(one_error(listen).starts_with("weir.toml:2: key `admin.listen`: needs TLS"));
    let open = one_error(&format!("{listen}{certificate}"));
    assert!(
        open.starts_with("weir.toml:2: key `admin.listen`: needs client certificates"),
        "{open}"
    );
    let idle = one_error(certificate);
    assert!(
        idle.contains("key `admin.tls`: has no effect without a listener"),
        "{idle}"
    );
    let whole = format!("{listen}[admin.tls]\nclient_ca_file = \"ca.pem\"\n{certificate}");
    let tcp = parse(&whole).unwrap().admin;
    let tcp = tcp.tcp().expect("on");
    assert_eq!((tcp.listen.port(), tcp.tls.certificates.len()), (9465, 1));
    assert_eq!(tcp.client_ca_file, Path::new("/etc/weir/ca.pem"));
}

#[test]
fn a_redirect_needs_something_to_redirect_to_and_a_port_of_its_own() {
    let redirect = |port| format!("[gateway.tls]\nredirect_listen = \"127.0.0.1:{port}\"\n");
    assert!(one_error(&redirect(80)).contains("needs a listener with TLS to redirect to"));
    let taken = one_error(&format!("{}{GATEWAY_CERTIFICATE}", redirect(8080)));
    assert!(
        taken.starts_with(
            "weir.toml:2: key `gateway.tls.redirect_listen`: the gateway already listens at 127.0.0.1:8080"
        ),
        "{taken}"
    );
    assert!(parse(&format!("{}{GATEWAY_CERTIFICATE}", redirect(80))).is_ok());
}

#[test]
fn other_certificates_need_no_restart_and_turning_tls_on_does() {
    for (section, one) in [
        ("gateway", GATEWAY_CERTIFICATE.to_owned()),
        ("stability", GATEWAY_CERTIFICATE.replace("gateway", "stability")),
    ] {
        let other = one.replace("c.pem", "d.pem");
        assert_eq!(needs_restart(&one, &other), [""; 0]);
        assert_eq!(needs_restart("", &one), [format!("{section}.tls.certificate")]);
        assert_eq!(needs_restart(&one, ""), [format!("{section}.tls.certificate")]);
    }
}

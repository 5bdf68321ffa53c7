//! What testssl.sh, the scanner that auditors use, finds at weir's listeners. It takes minutes, so the long form alone runs it.
//! The admin listener is left out: it speaks to nobody without a certificate, and the scanner has none to show.

use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::harness::WeirBuilder;
use crate::harness::certificates::{Authority, Kind};
use crate::harness::tools::{note, program, rounds, skip};

/// What it finds about the certificates of these tests, which are good for decades and of an authority that revokes none, and
/// about its own tools.
const NOT_WEIRS: [&str; 2] = ["cert", "engine_problem"];
const HARMLESS: [&str; 4] = ["OK", "INFO", "LOW", "DEBUG"];

/// How often a listener is scanned anew because the scanner could not connect for one of its checks, as on a busy machine.
const SCANS_MAX: usize = 4;

/// The findings at a listener, of a scan that could do all that it wanted.
fn findings(authority: &Authority, port: &str) -> Vec<Json> {
    let mut found = Vec::new();
    for _ in 0..SCANS_MAX {
        found = scanned(authority, port);
        let could_not = |one: &Json| {
            one["finding"]
                .as_str()
                .is_some_and(|text| text.contains("connect problem"))
        };
        if !found.iter().any(could_not) {
            break;
        }
    }
    found
}

fn scanned(authority: &Authority, port: &str) -> Vec<Json> {
    let folder = tempfile::tempdir().unwrap();
    let found = folder.path().join("found.json");
    let mut scanner = Command::new("testssl");
    scanner
        .args([
            "--quiet",
            "--color",
            "0",
            "--ip",
            "one",
            "--openssl",
            "/usr/bin/openssl",
        ])
        .arg("--add-ca")
        .arg(authority.ca_file())
        .arg("--jsonfile")
        .arg(&found);
    scanner.arg(format!("https://localhost:{port}"));
    scanner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Its exit code counts what it could not do, too: the findings say more.
    scanner.status().unwrap();
    match serde_json::from_slice(&std::fs::read(found).unwrap()).unwrap() {
        Json::Array(findings) => findings,
        other => panic!("{other}"),
    }
}

#[test]
fn no_listener_has_anything_above_low() {
    if rounds(0, 1) == 0 {
        return;
    }
    if program("testssl").is_none() {
        skip!("testssl is missing (Debian: apt-get install testssl.sh)");
    }
    let authority = Authority::new();
    for kind in [Kind::Ecdsa, Kind::Rsa] {
        let files = authority.files("listener", &["localhost"], kind);
        let mut builder = WeirBuilder::new().set("console.listen", "127.0.0.1:0");
        for listener in ["gateway", "stability", "console"] {
            builder = builder.set(&format!("{listener}.tls.certificate"), vec![files.setting()]);
        }
        let weir = builder.start();
        let text = std::fs::read_to_string(weir.folder().join("ready.json")).unwrap();
        let ready: Json = serde_json::from_str(&text).unwrap();
        std::thread::scope(|scope| {
            for listener in ["gateway", "stability", "console"] {
                let port = ready[listener].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
                let authority = &authority;
                scope.spawn(move || {
                    let findings = findings(authority, &port);
                    let is_harmless = |found: &&Json| {
                        let [severity, id] = ["severity", "id"].map(|name| found[name].as_str().unwrap_or_default());
                        HARMLESS.contains(&severity) || NOT_WEIRS.iter().any(|of| id.starts_with(of))
                    };
                    let (harmless, bad): (Vec<_>, Vec<_>) = findings.iter().partition(is_harmless);
                    assert!(bad.is_empty(), "{listener}, {kind:?}: {bad:#?}");
                    // It did look: a scan of one listener has some 180 findings.
                    assert!(harmless.len() > 100, "{listener}, {kind:?}: {harmless:#?}");
                    note(&format!(
                        "testssl: {listener}, {kind:?}: {} findings, none above low",
                        harmless.len()
                    ));
                });
            }
        });
    }
}

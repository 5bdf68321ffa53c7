//! Tests of `config::log_postgres` and `config::log_events`.

use super::*;
use crate::config::{JournalSink, log_home::LogHome, log_postgres::PostgresTls};

const HOME: &str = "[log]\nhome = \"postgres\"\n[log.postgres]\nurl = \"env:URL\"\n";
const EVENTS: &str = "[log.events]\nurl = \"https://meter.example/events\"\nsecret = \"env:S\"\n";

#[test]
fn a_home_in_postgres_demands_a_proven_server_and_is_kept_for() {
    let config = parse(HOME).unwrap();
    let LogHome::Postgres(postgres) = &config.log.home else {
        panic!("{:?}", config.log.home)
    };
    assert_eq!(postgres.tls, PostgresTls::VerifyFull);
    let required = JournalSink {
        name: "postgres",
        required: true,
    };
    assert_eq!(config.journal.sinks, [required]);
    // What stands there without being the home is of no effect.
    assert_eq!(
        parse("[log.postgres]\nurl = \"env:URL\"\n").unwrap().log.home,
        LogHome::Store
    );
}

#[test]
fn events_are_optional_unless_they_are_required() {
    for (more, required) in [("", false), ("required = true\n", true)] {
        let config = parse(&format!("{HOME}{EVENTS}{more}")).unwrap();
        let names: Vec<_> = config
            .journal
            .sinks
            .iter()
            .map(|sink| (sink.name, sink.required))
            .collect();
        assert_eq!(names, [("postgres", true), ("events", required)]);
    }
}

#[test]
fn what_is_wrong_with_a_sink_is_told_with_its_key() {
    for (text, key) in [
        ("[log]\nhome = \"postgres\"\n".to_owned(), "log.postgres.url"),
        (HOME.replace("env:URL", "postgres://u:hunter2@h/d"), "log.postgres.url"),
        (format!("{HOME}tls = \"prefer\"\n"), "log.postgres.tls"),
        (
            format!("{HOME}tls = \"require\"\nca_file = \"ca.pem\"\n"),
            "log.postgres.ca_file",
        ),
        (format!("{HOME}write_seconds = 111\n"), "log.postgres.write_seconds"),
        (EVENTS.replace("https://", "ftp://"), "log.events.url"),
        (EVENTS.replace("https://", "https://u:hunter2@"), "log.events.url"),
        (EVENTS.replace("secret = \"env:S\"\n", ""), "log.events.secret"),
        (format!("{EVENTS}batch_rows = 10001\n"), "log.events.batch_rows"),
        (format!("{EVENTS}source = \"a b\"\n"), "log.events.source"),
        (
            format!("{}authorization = \"env:A\"\n", EVENTS.replace("https", "http")),
            "log.events.authorization",
        ),
    ] {
        let error = one_error(&text);
        assert!(error.contains(&format!("`{key}`")), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let near = EVENTS.replace("https://meter.example", "http://127.0.0.1:8888");
    assert!(parse(&format!("{near}authorization = \"env:A\"\n")).is_ok());
}

//! Tests of `config::log`: the log backends and the billing events.

use super::*;
use crate::config::{
    JournalSink,
    log::{LogBackendConfig, LogBucketConfig, PostgresTls},
};

const HOME: &str = "[log]\nhome = \"postgres\"\n[log.postgres]\nurl = \"env:URL\"\n";
const REDIS: &str = "[store]\nengine = \"redis\"\n";
const EVENTS: &str = "[log.events]\nurl = \"https://meter.example/events\"\nsecret = \"env:S\"\n";
const BUCKET: &str = "[log]\nhome = \"files\"\n[log.files.bucket]\nname = \"weir-log\"\naccess_key_id = \"env:ID\"\nsecret_access_key = \"env:KEY\"\n";

fn bucket(more: &str) -> LogBucketConfig {
    let config = parse(&format!("{BUCKET}{more}")).unwrap();
    let LogBackendConfig::Files(files) = &config.log.home else {
        panic!("{:?}", config.log.home)
    };
    files.bucket.clone().unwrap()
}

#[test]
fn a_bucket_is_one_of_s3_unless_another_server_is_named() {
    let own = bucket("region = \"eu-central-1\"\nprefix = \"a/b=1\"\n");
    assert_eq!(own.endpoint(), "https://s3.eu-central-1.amazonaws.com");
    assert_eq!((own.prefix.as_str(), own.path_style()), ("a/b=1/", false));
    let other = bucket("endpoint = \"https://s3.example.com:9000/\"\n");
    assert_eq!(other.endpoint(), "https://s3.example.com:9000");
    assert_eq!((other.prefix.as_str(), other.path_style()), ("", true));
    for near in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"] {
        assert_eq!(bucket(&format!("endpoint = \"{near}\"\n")).endpoint(), near);
    }
    let said = bucket("endpoint = \"http://minio:9000\"\nallow_http = true\n");
    assert_eq!(said.endpoint(), "http://minio:9000");
    // Without a name, there is no bucket, and the files are in a folder.
    let LogBackendConfig::Files(files) = parse("[log]\nhome = \"files\"\n").unwrap().log.home else {
        panic!("files are the home")
    };
    assert_eq!(files.bucket, None);
}

#[test]
fn what_is_wrong_with_a_bucket_is_told_with_its_key() {
    for (more, key) in [
        ("endpoint = \"http://minio:9000\"\n", "endpoint"),
        ("endpoint = \"https://u:hunter2@minio\"\n", "endpoint"),
        ("endpoint = \"https://minio/path\"\n", "endpoint"),
        ("endpoint = \"minio\"\n", "endpoint"),
        ("endpoint = \"https://10.0.0.1\"\npath_style = false\n", "path_style"),
        ("prefix = \"/a\"\n", "prefix"),
        ("prefix = \"a/../b\"\n", "prefix"),
        ("prefix = \"a b\"\n", "prefix"),
        ("region = \"\"\n", "region"),
        ("connect_ms = 60001\n", "connect_ms"),
        ("answer_seconds = 111\n", "answer_seconds"),
        ("write_seconds = 0\n", "write_seconds"),
    ] {
        let error = one_error(&format!("{BUCKET}{more}"));
        assert!(error.contains(&format!("`log.files.bucket.{key}`")), "{more}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    for (from, to, key) in [
        ("weir-log", "Weir_Log", "name"),
        ("weir-log", "we", "name"),
        ("weir-log", "weir.log", "path_style"),
        ("env:ID", "AKIAhunter2", "access_key_id"),
        ("env:KEY", "hunter2", "secret_access_key"),
        ("access_key_id = \"env:ID\"\n", "", "access_key_id"),
        ("secret_access_key = \"env:KEY\"\n", "", "secret_access_key"),
    ] {
        let error = one_error(&BUCKET.replace(from, to));
        assert!(error.contains(&format!("`log.files.bucket.{key}`")), "{to}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_home_in_postgres_demands_a_proven_server_and_is_kept_for() {
    let config = parse(HOME).unwrap();
    let LogBackendConfig::Postgres(postgres) = &config.log.home else {
        panic!("{:?}", config.log.home)
    };
    assert_eq!(postgres.tls, PostgresTls::VerifyFull);
    let required = JournalSink {
        name: "postgres",
        required: true,
    };
    assert_eq!(config.journal.sinks, [required, JournalSink::EMBEDDED_STORE]);
    // The section of a backend that is not the log backend has no effect.
    let other = parse(&format!(
        "{REDIS}[log]\nhome = \"store\"\n[log.postgres]\nurl = \"env:URL\"\n"
    ))
    .unwrap();
    assert_eq!(other.log.home, LogBackendConfig::Store);
}

#[test]
fn the_home_before_is_another_one_and_has_its_own_section() {
    let config = parse(&HOME.replace("[log]\n", "[log]\nformer_home = \"files\"\n")).unwrap();
    assert!(
        matches!(config.log.former_home, Some(LogBackendConfig::Files(_))),
        "{:?}",
        config.log
    );
    assert!(matches!(config.log.home, LogBackendConfig::Postgres(_)));
    assert_eq!(
        config.journal.sinks.len(),
        2,
        "only the home is fed, and the store writes behind"
    );
    let home = format!("{REDIS}{HOME}");
    let back = home.replace("home = \"postgres\"", "home = \"store\"\nformer_home = \"postgres\"");
    assert!(matches!(
        parse(&back).unwrap().log.former_home,
        Some(LogBackendConfig::Postgres(_))
    ));
    let of_store = home.replace("[log]\n", "[log]\nformer_home = \"store\"\n");
    assert_eq!(parse(&of_store).unwrap().log.former_home, Some(LogBackendConfig::Store));
    assert_eq!(parse(HOME).unwrap().log.former_home, None);
    for former in ["postgres", "paper"] {
        let error = one_error(&HOME.replace("[log]\n", &format!("[log]\nformer_home = \"{former}\"\n")));
        assert!(error.contains("`log.former_home`"), "{error}");
    }
}

#[test]
fn the_log_is_at_home_in_files_beside_an_embedded_store_and_in_a_redis_that_says_nothing() {
    let files = |text: &str| match parse(text).unwrap().log.home {
        LogBackendConfig::Files(files) => Some(files.path),
        LogBackendConfig::Store | LogBackendConfig::Postgres(_) => None,
    };
    assert_eq!(files(""), Some("/var/lib/weir/log".into()));
    let embedded = "[store.embedded]\npath = \"/data/store\"\n";
    assert_eq!(files(embedded), Some("/data/log".into()));
    let redis = format!("{REDIS}[log.files]\nseconds = 60\n");
    assert_eq!(files(&redis), None);
    let named = redis.replace("[log.files]", "[log]\nhome = \"files\"\n[log.files]");
    assert_eq!(files(&named), Some("/var/lib/weir/log".into()));
    let elsewhere = format!("{embedded}[log.files]\npath = \"/elsewhere\"\n");
    assert_eq!(files(&elsewhere), Some("/elsewhere".into()));
}

#[test]
fn an_embedded_store_is_no_home_and_was_none() {
    let sections = "[store]\nengine = \"embedded\"\n[log]\n";
    for (line, told) in [
        (
            "home = \"store\"",
            "weir.toml:4: key `log.home`: an embedded store cannot store rows: give \"files\", or \"postgres\" with [log.postgres] url",
        ),
        (
            "former_home = \"store\"",
            "weir.toml:4: key `log.former_home`: an embedded store has no rows to read: give \"files\" or \"postgres\", or remove \
             this line",
        ),
    ] {
        assert_eq!(one_error(&format!("{sections}{line}\n")), told);
    }
    // If the section of the store is invalid, the log backend is not checked against it.
    let error = one_error("[store]\nengine = \"paper\"\n[log]\nhome = \"store\"\n");
    assert!(error.contains("`store.engine`"), "{error}");
}

#[test]
fn rows_wait_for_others_for_half_a_minute_where_other_nodes_read_them_and_else_for_an_hour() {
    let seconds = |text: &str| match parse(text).unwrap().log.home {
        LogBackendConfig::Files(files) => files.longest.as_secs(),
        LogBackendConfig::Store | LogBackendConfig::Postgres(_) => panic!("files are the home"),
    };
    let shared = format!("{REDIS}[log]\nhome = \"files\"\n");
    for (text, default) in [("[log]\nhome = \"files\"\n", 3600), (shared.as_str(), 30)] {
        assert_eq!(seconds(text), default);
        assert_eq!(seconds(&format!("{text}[log.files]\nseconds = 60\n")), 60);
    }
    for wrong in [0, 3601] {
        let error = one_error(&format!("[log.files]\nseconds = {wrong}\n"));
        assert!(error.contains("`log.files.seconds`"), "{error}");
    }
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
        assert_eq!(names, [("postgres", true), ("events", required), ("store", true)]);
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

//! Tests of `config`.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use super::*;
use crate::domain::{
    catalogue::{Catalogue, SecretRef},
    keys::secret::Secret,
    money::price::PriceList,
    rules,
};

mod bodies;
mod heads;
mod log_sinks;
mod openid;
mod restart;
mod shipped;
mod tls;
mod values;

/// The content of `conf/weir.toml`.
static SHIPPED: LazyLock<String> = LazyLock::new(|| std::fs::read_to_string(shipped_path()).unwrap());

fn shipped_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/weir.toml")
}

fn parse(text: &str) -> Result<Config, Vec<FileError>> {
    Config::parse("weir.toml", text, Path::new("/etc/weir")).map_err(|error| match error {
        ConfigError::Invalid(errors) => errors,
        ConfigError::Unreadable { .. } => panic!("nothing was read"),
    })
}

fn one_error(text: &str) -> String {
    let errors = parse(text).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].to_string()
}

/// Returns the settings that take effect only at the next start if `after` replaces `started`.
fn needs_restart(started: &str, after: &str) -> Vec<String> {
    let [started, after] = [started, after].map(|text| parse(text).unwrap());
    after.needs_restart(&started).into_iter().collect()
}

/// Returns the shipped file with settings uncommented: all of them, or only those with a default value outside of tables that are
/// complete examples.
fn uncommented(all: bool) -> String {
    let mut in_example = false;
    let lines = SHIPPED.lines().map(|line| {
        let key = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
        if line.starts_with('[') || line.starts_with("#[") {
            in_example = line.starts_with('#');
        }
        key.filter(|_| all || !(in_example || line.ends_with("# no default")))
            .unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the shipped file with all settings uncommented, and with the values that some of them require of others.
fn all_at_work() -> String {
    uncommented(true)
        .replace("tls = false", "tls = true")
        .replace("mode = \"standalone\"", "mode = \"sentinel\"")
}

/// Returns the file without the lines for trying out weir.
fn installed(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.ends_with("# for trying out"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shipped_file_is_made_of_the_declarations() {
    let made = shipped::made();
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(shipped_path(), made).unwrap();
    } else {
        assert!(
            made == *SHIPPED,
            "conf/weir.toml differs: write it with WEIR_WRITE=1, and read it"
        );
    }
}

#[test]
fn the_shipped_file_spells_out_the_defaults() {
    for engine in ["embedded", "redis"] {
        let text = installed(&uncommented(false));
        let text = text.replace("engine = \"embedded\"", &format!("engine = \"{engine}\""));
        let defaults = format!("[store]\nengine = \"{engine}\"");
        assert_eq!(parse(&text).unwrap(), parse(&defaults).unwrap());
    }
    assert_eq!(parse(&installed(&SHIPPED)).unwrap(), parse("").unwrap());
}

#[test]
fn every_example_of_the_shipped_file_is_one_that_loads() {
    let config = parse(&all_at_work()).unwrap();
    assert_eq!(config.catalogue.models.len(), 1);
    assert_eq!(config.catalogue.overrides.len(), 1);
    assert!(config.console.openid.is_some() && config.sign_in.template.is_some());
    assert!(config.log.events.is_some() && config.admin.tcp().is_some());
}

#[test]
fn the_shipped_file_works_without_a_folder_that_only_root_may_write() {
    let config = Config::parse("weir.toml", &SHIPPED, Path::new("/home/me/conf")).unwrap();
    let StoreConfig::Embedded(store) = config.store else {
        panic!("not embedded")
    };
    assert_eq!(store.path, Path::new("/home/me/conf/weir-data/store"));
    assert!(config.admin.socket.starts_with("/home/me/conf/weir-data"));
    assert!(config.admin.audit.starts_with("/home/me/conf/weir-data"));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_its_neighbour() {
    assert_eq!(
        one_error("[gateway]\nlisten = \"127.0.0.1:1\"\nkeepalive_secnds = 3\n"),
        "weir.toml:3: key `gateway.keepalive_secnds` is unknown, did you mean `keepalive_seconds`?"
    );
}

#[test]
fn every_wrong_value_is_named_at_once() {
    let text = "[gateway]\nlisten = \"localhost\"\nbody_bytes_max = 0\n[upstream]\n\nconnect_retries = 99\n";
    let errors = parse(text).unwrap_err();
    let places: Vec<_> = errors
        .iter()
        .map(|error| (error.key.as_deref().unwrap(), error.line.unwrap()))
        .collect();
    assert_eq!(
        places,
        [
            ("gateway.listen", 2),
            ("gateway.body_bytes_max", 3),
            ("upstream.connect_retries", 6)
        ]
    );
    assert_eq!(
        errors[2].to_string(),
        "weir.toml:6: key `upstream.connect_retries`: 99 is out of range, give 0 to 10"
    );
}

#[test]
fn limits_hold_at_their_edges() {
    for (value, fits) in [(0, false), (1, true), (1024, true), (1025, false)] {
        assert_eq!(
            parse(&format!("gateway.json_depth_max = {value}")).is_ok(),
            fits,
            "{value}"
        );
    }
    for (value, fits) in [(0, false), (1, true), (65_536, true), (65_537, false)] {
        let parsed = parse(&format!("gateway.references_max = {value}"));
        assert_eq!(parsed.is_ok(), fits, "{value}");
    }
    assert_eq!(parse("").unwrap().gateway.references_max, 1024);
}

#[test]
fn trusted_proxies_are_networks_or_addresses() {
    let text = "[stability]\ntrusted_proxies = [\"10.1.2.3/8\", \"192.0.2.1\", \"fd00::/8\", \"::1\"]";
    let config = parse(text).unwrap();
    let shown: Vec<String> = config
        .stability
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8", "::1/128"]);
    assert_eq!(needs_restart("", text), ["stability.trusted_proxies"]);
}

#[test]
fn connections_have_limits_and_only_their_number_needs_a_new_start() {
    let config = parse("[connections]\nmax = 5\nhead_seconds = 3").unwrap();
    let connections = &config.connections;
    assert_eq!((connections.max, connections.head), (5, Duration::from_secs(3)));
    let changed = "[connections]\nmax = 5\nhead_seconds = 3";
    assert_eq!(needs_restart("[connections]\nmax = 5", changed), [""; 0]);
    assert_eq!(needs_restart("", changed), ["connections.max"]);
    for wrong in [
        "max = 0",
        "requests_max = 0",
        "h2_streams_max = 0",
        "handshake_seconds = 61",
        "maximum = 1",
    ] {
        assert!(parse(&format!("[connections]\n{wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn a_secret_in_the_file_is_refused_without_an_echo() {
    for text in [
        "[provider.x]\nsecret = \"sk-canary-1234\"",
        "[provider.x]\nsecret = [\"sk-canary-1234\"]",
        "[provider.x]\nsecret = 1234",
        "[store.redis]\npassword = \"canary1234\"",
        "[store.redis]\nsentinel_password = \"canary1234\"",
        "[store.redis]\npassword = canary1234",
        "[store.redis]\npassword = \"canary1234\ntls = true",
    ] {
        let error = Config::parse("weir.toml", text, Path::new("/")).unwrap_err();
        for told in [error.to_string(), format!("{error:?}")] {
            assert!(!told.contains("canary") && !told.contains("1234"), "{told}");
            assert!(told.contains("weir.toml") && told.contains('2'), "{told}");
        }
    }
}

#[test]
fn references_and_paths_are_relative_to_the_file() {
    let text = "[provider.a]\nsecret = \"file:a.key\"\n[provider.b]\nsecret = \"env:B\"\n[log]\naccess = \"log/access.jsonl\"\n[rules]\nfolder = \"/rules\"";
    let config = parse(text).unwrap();
    let secret = |name: &str| config.catalogue.overrides[name].secret.clone().unwrap();
    assert_eq!(secret("a"), SecretRef::File("/etc/weir/a.key".to_owned()));
    assert_eq!(secret("b"), SecretRef::Env("B".to_owned()));
    assert_eq!(
        config.log.access,
        AccessTarget::File(PathBuf::from("/etc/weir/log/access.jsonl"))
    );
    assert_eq!(config.rules.folder, Some(PathBuf::from("/rules")));
}

#[test]
fn a_server_may_be_named_or_an_address() {
    for place in ["redis.example:6379", "10.0.0.1:1", "[::1]:6379"] {
        let text = format!("[store]\nengine = \"redis\"\n[store.redis]\nnodes = [\"{place}\"]");
        let StoreConfig::Redis(redis) = parse(&text).unwrap().store else {
            panic!("not redis")
        };
        assert_eq!(redis.nodes[0].to_string(), place);
    }
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let error = Config::load(Path::new("/nonexistent/weir.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nonexistent/weir.toml") && error.contains("--conf"),
        "{error}"
    );
}

#[test]
fn a_file_is_read_with_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, "[admin]\naudit = \"audit.jsonl\"").unwrap();
    let config = Config::load(&file).unwrap();
    assert_eq!(config.admin.audit, folder.path().join("audit.jsonl"));
    assert!((1..=4).contains(&config.gateway.threads));
}

#[test]
fn the_shipped_examples_fit_the_shipped_providers() {
    let config = parse(&all_at_work()).unwrap();
    let prices = PriceList::shipped().unwrap();
    let built = Catalogue::build(&rules::shipped(), &config.catalogue, &prices, &|_| {
        Ok(Some(Secret::new("secret-of-a-provider")))
    });
    let (catalogue, warnings) = built.unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(catalogue.find("house-model").is_some());
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_redis_is_one_server_or_sentinels_or_a_cluster() {
    let redis = |text: &str| {
        let text = format!("[store]\nengine = \"redis\"\n[store.redis]\n{text}");
        match parse(&text).unwrap().store {
            StoreConfig::Redis(redis) => redis,
            StoreConfig::Embedded(_) => panic!("not redis"),
        }
    };
    assert_eq!(redis("").mode, RedisModeConfig::Standalone);
    let cluster = redis("mode = \"cluster\"\nnodes = [\"a:1\", \"b:2\"]");
    assert_eq!((cluster.mode, cluster.nodes.len()), (RedisModeConfig::Cluster, 2));
    let sentinel = redis("mode = \"sentinel\"\nmaster_name = \"main\"\nsentinel_password = \"env:S\"");
    assert_eq!(sentinel.nodes[0].to_string(), "127.0.0.1:26379");
    let RedisModeConfig::Sentinel {
        master_name, password, ..
    } = sentinel.mode
    else {
        panic!("not sentinel");
    };
    assert_eq!((master_name.as_str(), password.is_some()), ("main", true));
}

//! `[store.redis]`: which keys belong to which mode, and their valid values.

use crate::config::raw::RawRedis;
use crate::config::values::{KeyPath, Values};
use crate::config::{RedisConfig, RedisModeConfig};

const MODE: KeyPath<'_> = &["store", "redis", "mode"];
const NODES: KeyPath<'_> = &["store", "redis", "nodes"];

pub(super) fn resolve(values: &mut Values<'_>, raw: RawRedis) -> RedisConfig {
    let mode = mode(values, &raw);
    let standard_port = if matches!(mode, RedisModeConfig::Sentinel { .. }) {
        "127.0.0.1:26379"
    } else {
        "127.0.0.1:6379"
    };
    let given = raw.nodes.unwrap_or_else(|| vec![standard_port.to_owned()]);
    if given.is_empty() {
        values.wrong(NODES, "empty, give at least one HOST:PORT");
    }
    if matches!(mode, RedisModeConfig::Standalone) && given.len() > 1 {
        values.wrong_combination(
            &[MODE],
            NODES,
            "a standalone server is one, set mode = \"sentinel\" or \"cluster\" beside it for more",
        );
    }
    let nodes = given.iter().filter_map(|node| values.host_port(NODES, node)).collect();
    let namespace = raw.namespace.unwrap_or_else(|| "weir".to_owned());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !(1..=64).contains(&namespace.len()) || !namespace.bytes().all(plain) {
        values.wrong(
            &["store", "redis", "namespace"],
            "not usable, give 1 to 64 of A-Z, a-z, 0-9, _, . and -",
        );
    }
    user(values, &["store", "redis", "username"], raw.username.as_deref());
    let tls = raw.tls.unwrap_or(false);
    if raw.ca_file.is_some() && !tls {
        values.wrong_combination(
            &[&["store", "redis", "tls"]],
            &["store", "redis", "ca_file"],
            "without effect, set tls = true beside it",
        );
    }
    let database = values.number(&["store", "redis", "database"], raw.database, 0, 0..=65_535);
    if matches!(mode, RedisModeConfig::Cluster) && database != 0 {
        values.wrong(
            &["store", "redis", "database"],
            "a cluster has database 0 only, leave it out",
        );
    }
    RedisConfig {
        mode,
        nodes,
        username: raw.username,
        password: values.secret(&["store", "redis", "password"], raw.password.as_ref()),
        database: u16::try_from(database).unwrap_or(u16::MAX),
        tls,
        ca_file: values.optional_path(&["store", "redis", "ca_file"], raw.ca_file.as_deref()),
        namespace,
        budget: values.millis(&["store", "redis", "budget_ms"], raw.budget_ms, 100, 1..=10_000),
        queue: values.millis(&["store", "redis", "queue_ms"], raw.queue_ms, 5_000, 1..=60_000),
    }
}

fn mode(values: &mut Values<'_>, raw: &RawRedis) -> RedisModeConfig {
    const MASTER_NAME: KeyPath<'_> = &["store", "redis", "master_name"];
    const USERNAME: KeyPath<'_> = &["store", "redis", "sentinel_username"];
    const PASSWORD: KeyPath<'_> = &["store", "redis", "sentinel_password"];
    let username = raw.sentinel_username.clone();
    user(values, USERNAME, username.as_deref());
    let password = values.secret(PASSWORD, raw.sentinel_password.as_ref());
    let mode = match raw.mode.as_deref() {
        None | Some("standalone") => RedisModeConfig::Standalone,
        Some("cluster") => RedisModeConfig::Cluster,
        Some("sentinel") => {
            let master_name = raw.master_name.clone().unwrap_or_default();
            if master_name.is_empty() {
                values.wrong_combination(
                    &[],
                    MASTER_NAME,
                    "missing, give the name that the sentinels know the master by",
                );
            }
            return RedisModeConfig::Sentinel {
                master_name,
                username,
                password,
            };
        }
        Some(_) => {
            values.wrong(
                &["store", "redis", "mode"],
                "no such mode, give standalone, sentinel or cluster",
            );
            // What stands beside it is judged once it is known.
            return RedisModeConfig::Cluster;
        }
    };
    for (at, is_given) in [
        (MASTER_NAME, raw.master_name.is_some()),
        (USERNAME, raw.sentinel_username.is_some()),
        (PASSWORD, raw.sentinel_password.is_some()),
    ] {
        if is_given {
            values.wrong_combination(&[MODE], at, "without effect, set mode = \"sentinel\" beside it");
        }
    }
    mode
}

fn user(values: &mut Values<'_>, at: KeyPath<'_>, given: Option<&str>) {
    if given.is_some_and(str::is_empty) {
        values.wrong(at, "empty, leave it out for the default user");
    }
}

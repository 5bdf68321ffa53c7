//! Turns the raw file into the checked configuration: defaults, limits, and values that depend on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::raw::{
    RawAdmin, RawConfig, RawGateway, RawJournal, RawKeyCache, RawLog, RawPrices, RawProvider, RawRules, RawStore,
    RawUpstream,
};
use super::source::Source;
use super::values::{KeyPath, Values, loopback};
use super::{
    AccessTarget, AdminConfig, Config, EmbeddedConfig, GatewayConfig, JournalConfig, JournalSink, KeyCacheConfig,
    LogConfig, OpsConfig, PricesConfig, RulesConfig, StoreConfig, UpstreamConfig,
};
use crate::domain::catalogue::{CatalogueSettings, Places, ProviderOverride};
use crate::domain::keys::secret::KeyPrefix;
use crate::domain::strict_toml::{self, FileError};

mod redis;

const DAY_SECONDS: u64 = 86_400;
/// The most threads that carry requests where none are named: each has connections to providers of its own, which are cold where
/// few requests come to it.
const THREADS_BY_DEFAULT_MAX: usize = 4;
/// The sections of which more is found wrong when what they name is read.
const JUDGED_LATER: [&str; 11] = [
    "gateway",
    "stability",
    "admin",
    "console",
    "sign_in",
    "provider",
    "model",
    "rules",
    "prices",
    "upstream",
    "store",
];
/// Pingora's own limit for a header block, in bytes.
const HEADER_BYTES_CEILING: u64 = 1_048_575;
/// Pingora's own limit for header fields.
const HEADER_COUNT_CEILING: u64 = 256;
/// What the kernel takes as a unix socket's path, without the closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What was read, and the keys that the parser has struck out of it; answers with values that can be used in any case, and
/// with everything that is wrong.
pub(super) fn resolve(
    file: &str,
    text: &str,
    folder: &Path,
    (raw, struck): (RawConfig, &BTreeSet<String>),
) -> (Config, Vec<FileError>) {
    let folder = std::path::absolute(if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    })
    .unwrap_or_else(|_| folder.to_owned());
    let mut values = Values::new(file, text, &folder, struck);
    let gateway = gateway(&mut values, &raw.gateway);
    let connections = super::connections::resolve(&mut values, &raw.connections, gateway.header_bytes_max);
    let own_usage = super::own_usage::resolve(&mut values, &raw.own_usage);
    let upstream = upstream(&mut values, &raw.upstream);
    let retry = super::retry::resolve(&raw.retry);
    let store = store(&mut values, raw.store);
    let key_cache = key_cache(&mut values, &raw.key_cache);
    let money = super::money::resolve(&mut values, &raw.money);
    let leases = super::leases::resolve(&mut values, &raw.leases);
    let notices = super::notices::resolve(&mut values, &raw.notices);
    let journal = journal(&mut values, &raw.journal);
    let ops = OpsConfig {
        listen: values.address(&["ops", "listen"], raw.ops.listen.as_deref(), loopback(9464)),
    };
    let stability = super::stability::resolve(&mut values, &raw.stability);
    let admin = admin(&mut values, &raw.admin);
    let console = super::console::resolve(&mut values, &raw.console);
    let sign_in = super::sign_in::resolve(&mut values, &raw.sign_in, &console);
    let log = log(&mut values, &raw.log, &store);
    let journal = JournalConfig {
        sinks: sinks(&log, &store),
        ..journal
    };
    let rules = rules(&mut values, &raw.rules);
    let prices = prices(&mut values, &raw.prices);
    let overrides = overrides(&mut values, raw.provider);
    let catalogue = CatalogueSettings {
        overrides,
        models: raw.model,
        places: Places {
            file: file.to_owned(),
            lines: strict_toml::all::lines(text, &JUDGED_LATER),
            unread: struck.clone(),
        },
    };
    super::listeners::alone(&mut values, (&gateway, &ops, &stability, &admin, &console));
    let config = Config {
        gateway,
        connections,
        own_usage,
        upstream,
        retry,
        store,
        key_cache,
        money,
        leases,
        notices,
        journal,
        ops,
        stability,
        admin,
        console,
        sign_in,
        log,
        rules,
        prices,
        catalogue,
        source: Source::new(file, text, &folder),
    };
    (config, values.errors)
}

fn overrides(values: &mut Values<'_>, raw: BTreeMap<String, RawProvider>) -> BTreeMap<String, ProviderOverride> {
    let checked = |(name, raw): (String, RawProvider)| {
        let checked = provider(values, &name, raw);
        (name, checked)
    };
    raw.into_iter().map(checked).collect()
}

fn gateway(values: &mut Values<'_>, raw: &RawGateway) -> GatewayConfig {
    let prefix = raw.key_prefix.as_deref().map(KeyPrefix::new).transpose();
    let key_prefix = prefix.unwrap_or_else(|error| {
        values.wrong(&["gateway", "key_prefix"], error);
        None
    });
    let threads = match values.count(&["gateway", "threads"], raw.threads, 0, 0..=1024) {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS_BY_DEFAULT_MAX)),
        given => given,
    };
    let bytes_per_second_min = least_speed(values, raw.bytes_per_second_min);
    let bodies = super::bodies::resolve(values, raw, bytes_per_second_min);
    let day = 1..=DAY_SECONDS;
    GatewayConfig {
        listen: values.address(&["gateway", "listen"], raw.listen.as_deref(), loopback(8080)),
        threads,
        json_depth_max: values.count(&["gateway", "json_depth_max"], raw.json_depth_max, 256, 1..=1024),
        references_max: values.count(&["gateway", "references_max"], raw.references_max, 1024, 1..=65_536),
        session_tag: raw.session_tag.unwrap_or(false),
        bodies,
        header_bytes_max: values.count(
            &["gateway", "header_bytes_max"],
            raw.header_bytes_max,
            65_536,
            1024..=HEADER_BYTES_CEILING,
        ),
        header_count_max: values.count(
            &["gateway", "header_count_max"],
            raw.header_count_max,
            100,
            8..=HEADER_COUNT_CEILING,
        ),
        keepalive: values.seconds(
            &["gateway", "keepalive_seconds"],
            raw.keepalive_seconds,
            75,
            day.clone(),
        ),
        write: values.seconds(&["gateway", "write_seconds"], raw.write_seconds, 60, day),
        bytes_per_second_min,
        drain: values.seconds(&["gateway", "drain_seconds"], raw.drain_seconds, 600, 0..=DAY_SECONDS),
        count_tokens_concurrency: values.count(
            &["gateway", "count_tokens_concurrency"],
            raw.count_tokens_concurrency,
            64,
            1..=65_536,
        ),
        key_prefix: key_prefix.unwrap_or_default(),
        proxy_protocol_from: values.networks(&["gateway", "proxy_protocol_from"], raw.proxy_protocol_from.as_deref()),
        tls: super::tls::gateway(values, &raw.tls),
    }
}

fn least_speed(values: &mut Values<'_>, given: Option<u64>) -> u64 {
    values.number(&["gateway", "bytes_per_second_min"], given, 240, 0..=1 << 30)
}

fn upstream(values: &mut Values<'_>, raw: &RawUpstream) -> UpstreamConfig {
    let day = || 1..=DAY_SECONDS;
    UpstreamConfig {
        connect: values.millis(&["upstream", "connect_ms"], raw.connect_ms, 3000, 1..=600_000),
        first_byte: values.seconds(&["upstream", "first_byte_seconds"], raw.first_byte_seconds, 120, day()),
        first_byte_unary: values.seconds(
            &["upstream", "first_byte_unary_seconds"],
            raw.first_byte_unary_seconds,
            600,
            day(),
        ),
        head_wait: values.seconds(&["upstream", "head_wait_seconds"], raw.head_wait_seconds, 5, 1..=60),
        error_body: values.seconds(&["upstream", "error_body_seconds"], raw.error_body_seconds, 5, 1..=60),
        idle: values.seconds(&["upstream", "idle_seconds"], raw.idle_seconds, 300, day()),
        total: values.seconds(&["upstream", "total_seconds"], raw.total_seconds, 3600, day()),
        pool_idle: values.seconds(&["upstream", "pool_idle_seconds"], raw.pool_idle_seconds, 50, day()),
        pool_size: values.count(&["upstream", "pool_size"], raw.pool_size, 256, 1..=65_536),
        connect_retries: values.count(&["upstream", "connect_retries"], raw.connect_retries, 1, 0..=10),
        http2: raw.http2.unwrap_or(false),
        ca_file: values.optional_path(&["upstream", "ca_file"], raw.ca_file.as_deref()),
        resolve: values.seconds(&["upstream", "resolve_seconds"], raw.resolve_seconds, 30, day()),
        resolve_timeout: values.millis(
            &["upstream", "resolve_timeout_ms"],
            raw.resolve_timeout_ms,
            2000,
            1..=60_000,
        ),
        client_gone_finish_max: values.count(
            &["upstream", "client_gone_finish_max"],
            raw.client_gone_finish_max,
            256,
            0..=1_000_000,
        ),
        client_gone_finish: values.seconds(
            &["upstream", "client_gone_finish_seconds"],
            raw.client_gone_finish_seconds,
            600,
            day(),
        ),
    }
}

fn store(values: &mut Values<'_>, raw: RawStore) -> StoreConfig {
    // Both are checked, so that a mistake shows before the day the engine is changed.
    let path = raw.embedded.path.as_deref().unwrap_or("/var/lib/weir/store");
    let embedded = EmbeddedConfig {
        path: values.path(&["store", "embedded", "path"], path),
    };
    let redis = redis::resolve(values, raw.redis);
    match raw.engine.as_deref() {
        None | Some("embedded") => StoreConfig::Embedded(embedded),
        Some("redis") => StoreConfig::Redis(Box::new(redis)),
        Some(_) => {
            values.wrong(&["store", "engine"], "no such engine, give embedded or redis");
            StoreConfig::Embedded(embedded)
        }
    }
}

fn key_cache(values: &mut Values<'_>, raw: &RawKeyCache) -> KeyCacheConfig {
    KeyCacheConfig {
        lifetime: values.seconds(&["key_cache", "lifetime_seconds"], raw.lifetime_seconds, 60, 1..=3600),
        offline: values.seconds(&["key_cache", "offline_seconds"], raw.offline_seconds, 300, 0..=86_400),
        negative: values.seconds(&["key_cache", "negative_seconds"], raw.negative_seconds, 5, 1..=3600),
        entries_max: values.count(&["key_cache", "entries_max"], raw.entries_max, 100_000, 1..=10_000_000),
        unknown: super::unknown_keys::resolve(values, &raw.unknown),
        poll: values.millis(&["key_cache", "poll_ms"], raw.poll_ms, 500, 10..=10_000),
        flush_used: values.seconds(
            &["key_cache", "flush_used_seconds"],
            raw.flush_used_seconds,
            5,
            1..=3600,
        ),
    }
}

fn journal(values: &mut Values<'_>, raw: &RawJournal) -> JournalConfig {
    let path = raw.path.as_deref().unwrap_or("/var/lib/weir/journal");
    let days = values.number(&["journal", "keep_days"], raw.keep_days, 7, 1..=3650);
    JournalConfig {
        path: values.path(&["journal", "path"], path),
        segment_bytes: values.number(
            &["journal", "segment_bytes"],
            raw.segment_bytes,
            64 << 20,
            1 << 20..=1 << 30,
        ),
        keep: Duration::from_secs(days.saturating_mul(DAY_SECONDS)),
        sync: values.millis(&["journal", "sync_ms"], raw.sync_ms, 10, 1..=1000),
        sinks: Vec::new(),
    }
}

fn admin(values: &mut Values<'_>, raw: &RawAdmin) -> AdminConfig {
    const SOCKET: KeyPath<'_> = &["admin", "socket"];
    let socket = values.path(SOCKET, raw.socket.as_deref().unwrap_or("/run/weir/admin.sock"));
    let bytes = socket.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let long = format_args!("a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, this one {bytes}");
        values.wrong(SOCKET, long);
    }
    let audit = raw.audit.as_deref().unwrap_or("/var/lib/weir/audit.jsonl");
    AdminConfig {
        socket,
        audit: values.path(&["admin", "audit"], audit),
        tcp: super::tls::admin(values, raw.listen.as_deref(), &raw.tls),
    }
}

fn log(values: &mut Values<'_>, raw: &RawLog, store: &StoreConfig) -> LogConfig {
    let access = match raw.access.as_deref() {
        None | Some("stdout") => AccessTarget::Stdout,
        Some("off") => AccessTarget::Off,
        Some(path) => AccessTarget::File(values.path(&["log", "access"], path)),
    };
    let level = match raw.level.as_deref() {
        Some("error") => LevelFilter::ERROR,
        Some("warn") => LevelFilter::WARN,
        None | Some("info") => LevelFilter::INFO,
        Some("debug") => LevelFilter::DEBUG,
        Some("trace") => LevelFilter::TRACE,
        Some(_) => {
            values.wrong(
                &["log", "level"],
                "no such level, give error, warn, info, debug or trace",
            );
            LevelFilter::INFO
        }
    };
    let lines = values.count(
        &["log", "access_queue_lines"],
        raw.access_queue_lines,
        65_536,
        1..=16_777_216,
    );
    let embedded = match store {
        StoreConfig::Embedded(store) => Some(store.path.as_path()),
        StoreConfig::Redis(_) => None,
    };
    let hours = values.number(&["log", "store_keep_hours"], raw.store_keep_hours, 48, 1..=4320);
    let homes = (raw.home.as_deref(), raw.former_home.as_deref());
    let (home, former_home) = super::log_home::resolve(values, homes, (&raw.files, &raw.postgres), embedded);
    LogConfig {
        access,
        level,
        access_queue_lines: lines,
        home,
        former_home,
        home_is_named: raw.home.is_some(),
        store_keep: Duration::from_secs(hours.saturating_mul(3600)),
        events: super::log_events::resolve(values, &raw.events),
    }
}

/// Those for whom the journal keeps its files.
fn sinks(log: &LogConfig, store: &StoreConfig) -> Vec<JournalSink> {
    let events = log.events.as_ref().map(super::log_events::LogEventsConfig::sink);
    let store = matches!(store, StoreConfig::Embedded(_)).then_some(JournalSink::EMBEDDED_STORE);
    log.home.sink().into_iter().chain(events).chain(store).collect()
}

fn rules(values: &mut Values<'_>, raw: &RawRules) -> RulesConfig {
    RulesConfig {
        shipped: raw.shipped.unwrap_or(true),
        folder: values.optional_path(&["rules", "folder"], raw.folder.as_deref()),
    }
}

fn prices(values: &mut Values<'_>, raw: &RawPrices) -> PricesConfig {
    PricesConfig {
        shipped: raw.shipped.unwrap_or(true),
        file: values.optional_path(&["prices", "file"], raw.file.as_deref()),
    }
}

fn provider(values: &mut Values<'_>, name: &str, raw: RawProvider) -> ProviderOverride {
    if raw.base_url.as_deref().is_some_and(|url| !is_base_url(url)) {
        let hint = "not a base URL, give http(s)://HOST[:PORT] without a path or a user";
        values.wrong(&["provider", name, "base_url"], hint);
    }
    ProviderOverride {
        secret: values.secret(&["provider", name, "secret"], raw.secret.as_ref()),
        base_url: raw.base_url,
        enabled: raw.enabled,
    }
}

fn is_base_url(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else {
        return false;
    };
    let web = matches!(url.scheme_str(), Some("http" | "https"));
    let bare = url.path_and_query().is_none_or(|path| path.as_str() == "/");
    web && bare && !text.contains('#') && url.authority().is_some_and(|place| !place.as_str().contains('@'))
}

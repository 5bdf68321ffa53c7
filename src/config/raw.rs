//! `weir.toml` as written: every key optional and unchecked. [`super::resolve`] adds defaults and checks limits.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::raw_secret::RawSecret;
use crate::domain::catalogue::RawModel;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) gateway: RawGateway,
    pub(super) connections: super::connections::RawConnections,
    pub(super) own_usage: super::own_usage::RawOwnUsage,
    pub(super) upstream: RawUpstream,
    pub(super) retry: super::retry::RawRetry,
    pub(super) store: RawStore,
    pub(super) key_cache: RawKeyCache,
    pub(super) money: super::money::RawMoney,
    pub(super) leases: super::leases::RawLeases,
    pub(super) notices: super::notices::RawNotices,
    pub(super) journal: RawJournal,
    pub(super) ops: RawOps,
    pub(super) stability: super::stability::RawStability,
    pub(super) admin: RawAdmin,
    pub(super) console: super::console::RawConsole,
    pub(super) sign_in: super::sign_in::RawSignIn,
    pub(super) log: RawLog,
    pub(super) rules: RawRules,
    pub(super) prices: RawPrices,
    pub(super) provider: BTreeMap<String, RawProvider>,
    pub(super) model: Vec<RawModel>,
}

/// `[gateway]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawGateway {
    pub(super) listen: Option<String>,
    pub(super) threads: Option<u64>,
    pub(super) key_prefix: Option<String>,
    pub(super) json_depth_max: Option<u64>,
    pub(super) references_max: Option<u64>,
    pub(super) session_tag: Option<bool>,
    pub(super) body_bytes_max: Option<u64>,
    pub(super) body_budget_bytes: Option<u64>,
    pub(super) body_key_bytes: Option<u64>,
    pub(super) body_address_bytes: Option<u64>,
    pub(super) body_work_key_percent: Option<u64>,
    pub(super) header_bytes_max: Option<u64>,
    pub(super) header_count_max: Option<u64>,
    pub(super) body_read_seconds: Option<u64>,
    pub(super) body_seconds: Option<u64>,
    pub(super) keepalive_seconds: Option<u64>,
    pub(super) write_seconds: Option<u64>,
    pub(super) bytes_per_second_min: Option<u64>,
    pub(super) drain_seconds: Option<u64>,
    pub(super) count_tokens_concurrency: Option<u64>,
    pub(super) proxy_protocol_from: Option<Vec<String>>,
    pub(super) tls: super::tls::RawGatewayTls,
}

/// `[upstream]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawUpstream {
    pub(super) connect_ms: Option<u64>,
    pub(super) first_byte_seconds: Option<u64>,
    pub(super) first_byte_unary_seconds: Option<u64>,
    pub(super) head_wait_seconds: Option<u64>,
    pub(super) error_body_seconds: Option<u64>,
    pub(super) idle_seconds: Option<u64>,
    pub(super) total_seconds: Option<u64>,
    pub(super) pool_idle_seconds: Option<u64>,
    pub(super) pool_size: Option<u64>,
    pub(super) connect_retries: Option<u64>,
    pub(super) http2: Option<bool>,
    pub(super) ca_file: Option<String>,
    pub(super) resolve_seconds: Option<u64>,
    pub(super) resolve_timeout_ms: Option<u64>,
    pub(super) client_gone_finish_max: Option<u64>,
    pub(super) client_gone_finish_seconds: Option<u64>,
}

/// `[store]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStore {
    pub(super) engine: Option<String>,
    pub(super) embedded: RawEmbedded,
    pub(super) redis: RawRedis,
}

/// `[store.embedded]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEmbedded {
    pub(super) path: Option<String>,
}

/// `[store.redis]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRedis {
    pub(super) mode: Option<String>,
    pub(super) master_name: Option<String>,
    pub(super) sentinel_username: Option<String>,
    pub(super) sentinel_password: Option<RawSecret>,
    pub(super) nodes: Option<Vec<String>>,
    pub(super) username: Option<String>,
    pub(super) password: Option<RawSecret>,
    pub(super) database: Option<u64>,
    pub(super) tls: Option<bool>,
    pub(super) ca_file: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) budget_ms: Option<u64>,
    pub(super) queue_ms: Option<u64>,
}

/// `[key_cache]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawKeyCache {
    pub(super) lifetime_seconds: Option<u64>,
    pub(super) offline_seconds: Option<u64>,
    pub(super) negative_seconds: Option<u64>,
    pub(super) entries_max: Option<u64>,
    pub(super) unknown: super::unknown_keys::RawUnknownKeys,
    pub(super) poll_ms: Option<u64>,
    pub(super) flush_used_seconds: Option<u64>,
}

/// `[journal]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawJournal {
    pub(super) path: Option<String>,
    pub(super) segment_bytes: Option<u64>,
    pub(super) keep_days: Option<u64>,
    pub(super) sync_ms: Option<u64>,
}

/// `[ops]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawOps {
    pub(super) listen: Option<String>,
}

/// `[admin]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) socket: Option<String>,
    pub(super) audit: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) tls: super::tls::RawAdminTls,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) access: Option<String>,
    pub(super) level: Option<String>,
    pub(super) access_queue_lines: Option<u64>,
    pub(super) home: Option<String>,
    pub(super) former_home: Option<String>,
    pub(super) store_keep_hours: Option<u64>,
    pub(super) files: super::log_home::RawLogFiles,
    pub(super) postgres: super::log_postgres::RawLogPostgres,
    pub(super) events: super::log_events::RawLogEvents,
}

/// `[rules]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRules {
    pub(super) shipped: Option<bool>,
    pub(super) folder: Option<String>,
}

/// `[prices]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPrices {
    pub(super) shipped: Option<bool>,
    pub(super) file: Option<String>,
}

/// `[provider.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProvider {
    pub(super) base_url: Option<String>,
    pub(super) secret: Option<RawSecret>,
    pub(super) enabled: Option<bool>,
}

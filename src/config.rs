//! stub
use std::{net::SocketAddr, time::Duration, path::PathBuf};
use crate::domain::secret::KeyPrefix;
#[derive(Debug, Clone)] pub struct Config { pub gateway: GatewayConfig, pub upstream: UpstreamConfig }
#[derive(Debug, Clone)] pub struct GatewayConfig { pub listen: SocketAddr, pub threads: usize, pub key_prefix: KeyPrefix, pub json_depth_max: usize, pub body_bytes_max: usize, pub body_budget_bytes: usize, pub header_bytes_max: usize, pub header_count_max: usize, pub body_read: Duration, pub keepalive: Duration, pub write: Duration, pub drain: Duration }
#[derive(Debug, Clone)] pub struct UpstreamConfig { pub connect: Duration, pub first_byte: Duration, pub first_byte_unary: Duration, pub idle: Duration, pub total: Duration, pub pool_idle: Duration, pub pool_size: usize, pub connect_retries: usize, pub ca_file: Option<PathBuf> }

//! The pure core: bytes and values in, decisions and bytes out. Time and randomness come in as arguments.

pub mod credential;
pub mod http1;
pub mod key;
pub mod key_id;
pub mod not_forwarded;
pub mod operation;
pub mod pace;
pub mod secret;

pub mod catalogue;
pub mod circuit;
pub mod json_scan;
pub mod retry;
pub mod route;
pub mod rules;
pub mod strict_toml;

pub mod finish_reason;
pub mod json_array;
pub mod json_pick;
pub mod outcome;
pub mod protocol;
pub mod provider_state;
pub mod proxy_protocol;
pub mod query;
pub mod query_value;
pub mod refusal;
pub mod session_hint;
pub mod sse;
pub mod tokens;
pub mod usage;
pub mod wire;

pub mod calibration;
pub mod consumption;
pub mod ledger;
pub mod money;
pub mod price;
pub mod retention;
pub mod spend_limit;
pub mod stability;
pub mod terms;

//! Keys: where requests carry them, their records and limits, and the headers and parameters that never reach a provider.

pub(crate) mod account_headers;
pub(crate) mod change;
pub(crate) mod credential;
pub(crate) mod key;
pub(crate) mod key_id;
pub(crate) mod not_forwarded;
pub(crate) mod plain_search;
pub(crate) mod query;
pub(crate) mod rotation;
pub(crate) mod secret;
pub(crate) mod template;
pub(crate) mod terms;
pub(crate) mod thresholds;
pub(crate) mod webhook_signature;

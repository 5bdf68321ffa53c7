//! Integration tests: the real binary against real peers, one module per behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, wait by the clock and tell what they skip"
)]

mod harness;

mod admin_over_tcp;
mod agents;
mod allocator;
mod autobahn;
mod beginnings;
mod bodies;
mod body_floods;
mod body_shares;
mod broken_streams;
mod capacity;
mod check;
mod coded_answers;
mod coded_bodies;
mod console;
mod count_tokens;
mod credentials;
mod demo;
mod early_refusals;
mod errors;
mod examples;
mod expectations;
mod failover;
mod front;
mod fuzz;
mod headers;
mod held_bodies;
mod hostile;
mod house;
mod http_1_0;
mod json;
mod keep_alive;
mod keys;
mod listener_tls;
mod log_events;
mod log_lines;
mod log_postgres;
mod log_reading;
mod made_up_keys;
mod masked_errors;
mod mislabelled_answers;
mod model_lists;
mod model_names;
mod money;
mod named_models;
mod node_sdk;
mod ops;
mod panics;
mod peers;
mod plugin;
mod prices;
mod progress;
mod prometheus;
mod providers;
mod proxy_protocol;
mod readme;
mod redis_setup;
mod reload;
mod routes;
mod routing;
mod sdk;
mod sdk_headers;
mod secrets;
mod service_manager;
mod shutdown;
mod side_listeners;
mod siege;
mod sign_in;
mod soak;
mod sockets;
mod stability;
mod stale_connections;
mod state;
mod storm;
mod stream_ends;
mod streams;
mod stuck_outputs;
mod testssl;
mod tls;
mod trailers;
mod transcripts;
mod translation;
mod unseen_usage;
mod upgrade;
mod upstream_http2;
mod usage;

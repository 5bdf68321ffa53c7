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

mod bodies;
mod credentials;
mod errors;
mod headers;
mod routes;
mod streams;

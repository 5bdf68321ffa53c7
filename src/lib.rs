//! weir: an authenticated, metering gateway in front of generative-model providers.
//!
//! The map, in reading order. Who may use whom is a table, held by a test (`tests/integration/house/directions.rs`).
//! `domain` is pure: no I/O, no async, no clock, no Pingora, no Redis.
//!
//! Public is what the binary calls, and `parts`. All else is the crate's own, so that the compiler sees what is unused.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is that of the private items too: cargo doc --document-private-items"
)]

mod admin;
mod api;
mod cli;
mod config;
mod console;
mod domain;
mod edges;
mod front;
mod gateway;
mod journal;
mod money;
mod providers;
#[cfg(feature = "sample-provider")]
mod sample_provider;
mod side;
mod sign_in;
mod sinks;
mod stability;
mod store;
mod telemetry;
mod wiring;

pub use cli::parse;
pub use wiring::{StartError, run, tell};

/// What the benches, the fuzz targets and the browser's test drive by itself. Nothing else may rely on it.
#[doc(hidden)]
pub mod parts {
    pub use crate::{
        domain::{
            faults::stability::{Counters, Hour, ModelWindow, Window},
            keys::key::{KeyId, KeyRecord, KeyState},
            ledger::{Admit, AdmitReply, Change, KeyTerms, NodeId, Step, journaled::reread},
            money::{NanoUsd, price::PriceList},
            rules::{
                BodyRules, EditError, RequestFacts, ResponseRewriter, RuleFile, compile::compile, edit_body, shipped,
            },
            wire::{
                http1::{chunked, head},
                json_scan::{JsonEnd, NamedModels, Progress, Scan, ScanLimits, scan},
                operation::Operation,
                protocol::{Break, Framing, Observed, Observer, Protocol, observer::HEAP_BYTES_MAX},
                proxy_protocol,
                tokens::CharClasses,
            },
        },
        gateway::coding::{Coding, decoding},
        journal::frame,
        stability::public::page,
        store::{
            KeyStore,
            ledger::LedgerStore,
            redis::{Adopt, RedisLedger, RedisMode, RedisSettings, RedisStore},
        },
    };

    /// The log in files.
    pub mod log {
        pub use crate::{
            domain::{
                ledger::{
                    consumption::{Modifiers, Row, UsageSource},
                    log_filter::LogFilter,
                    log_place::LogPlace,
                    tag::Tag,
                },
                wire::usage::Usage,
            },
            journal::NumberedRow,
            sinks::{
                asks::{HomeError, LogPage, PAGE_ROWS_MAX, PageAsk},
                files::LogFiles,
                home::LogHome,
                sink::{Batch, Sink, SinkError},
            },
        };
    }
}

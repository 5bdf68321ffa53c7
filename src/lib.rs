//! weir is a gateway for generative models, built on [Pingora](pingora). It authenticates clients, forwards their requests to
//! providers, and meters and bills the usage.
//!
//! weir usually runs as a program of its own: `weir serve --conf weir.toml`. This crate contains that program. The crate is also
//! a library. Another program built on Pingora can use the library to run weir in its own server:
//!
//! | item | for |
//! |---|---|
//! | [`Services`] | weir's services, built from a configuration and added to a `pingora::server::Server` |
//! | [`Node`] | weir in that server: its addresses, metrics, reload and end |
//! | [`StartError`] | the reason why weir cannot start |
//! | [`parse`], [`run`], [`print_error`] | the program itself, in its own process |
//!
//! The crate has no other public items. The interfaces for clients, operators and billing systems (protocols, metrics, the admin
//! API, files) are described in `docs/`.
//!
//! # In your own server
//!
//! ```no_run
//! use pingora::server::{RunArgs, Server, configuration::ServerConf};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let conf = ServerConf {
//!         // When the server stops, Pingora waits this long: `[gateway] drain_seconds` plus five seconds.
//!         grace_period_seconds: Some(65),
//!         ..ServerConf::default()
//!     };
//!     let mut server = Server::new_with_opt_and_conf(None, conf);
//!     server.bootstrap();
//!     let weir = weir::Services::from_file("weir.toml")?.add_to(&mut server)?;
//!     println!("clients are served at {}", weir.gateway());
//!     server.run(RunArgs::default());
//!     weir.finish();
//!     Ok(())
//! }
//! ```
//!
//! `examples/plugin/` is a server that runs a service of its own in addition to weir's. `docs/plugin.md` describes how both are
//! stopped, scraped and upgraded, and what weir leaves to the owner of the process: signals, the log, the allocator, the service
//! manager and the exit code.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is that of the private items too: cargo doc --document-private-items"
)]

// ARCHITECTURE.md has the reading order of the modules and their allowed dependencies. All modules are private, so that the
// compiler finds unused code. Only the items of the table above and those of `parts` are public.
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

pub use crate::cli::parse;
pub use crate::wiring::{Node, Services, StartError, print_error, run};

/// The parts of weir that benches, fuzz targets and the browser test call directly. No other code may rely on them.
#[doc(hidden)]
pub mod parts {
    pub use crate::{
        domain::{
            faults::stability::{Hour, ModelWindow, StabilityCounters, StabilityWindow},
            keys::{KeyId, KeyRecord, KeyState},
            ledger::{AccountChange, AdmitCall, AdmitReply, KeyTerms, NodeId, Step, journaled::reread},
            money::{NanoUsd, price::PriceList},
            rules::{
                BodyRules, EditError, RequestFacts, ResponseRewriter, RuleFile, compile::compile, edit_body, shipped,
            },
            wire::{
                http1::{self, head},
                json_scan::{JsonEnd, JsonEndProgress, NamedModels, Scan, ScanLimits, scan},
                operation::Operation,
                protocol::{AnswerFraming, AnswerReport, Break, Observer, Protocol, observer::HEAP_BYTES_MAX},
                proxy_protocol,
                tokens::CharClasses,
                websocket,
            },
        },
        gateway::coding::{Coding, decoding},
        journal::frame,
        stability::public::page,
        store::{
            KeyStore,
            ledger::LedgerStore,
            redis::{AdoptPolicy, RedisLedger, RedisMode, RedisSettings, RedisStore},
        },
    };

    pub mod translation;

    /// The consumption log that is stored in files.
    pub mod log {
        pub use crate::{
            domain::{
                ledger::{
                    consumption::{PriceModifiers, RequestTransport, Row, UsageSource},
                    ids::Tag,
                    log_query::{LogFilter, LogPosition},
                },
                wire::usage::Usage,
            },
            journal::NumberedRow,
            sinks::{
                Batch, LogBackend, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage, Sink, SinkError,
                files::LogFiles,
            },
        };
    }
}

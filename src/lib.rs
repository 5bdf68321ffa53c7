//! weir: an authenticated, metering gateway in front of generative-model providers, on [Pingora](pingora).
//!
//! Most run it as a program: `weir serve --conf weir.toml`. This crate is that program, and a plugin for a program of one's own that
//! is built on Pingora:
//!
//! | item | for |
//! |---|---|
//! | [`Services`] | weir's services, built from a configuration and added to a `pingora::server::Server` |
//! | [`Node`] | weir in that server: where it listens, its metrics, its reload and its end |
//! | [`StartError`] | why it does not start |
//! | [`parse`], [`run`], [`tell`] | the program itself, in a process that is its own |
//!
//! Nothing else is public. What clients, operators and billing systems use (protocols, metrics, the admin API, files) is described in
//! `docs/`.
//!
//! # In a server of one's own
//!
//! ```no_run
//! use pingora::server::{RunArgs, Server, configuration::ServerConf};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let conf = ServerConf {
//!         // Pingora waits for as long as this at each stop: as long as `[gateway] drain_seconds`, and five seconds more.
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
//! `examples/plugin/` has a service of its own beside weir's; `docs/plugin.md` says how both are stopped, scraped and upgraded, and
//! what weir leaves to the owner of the process: signals, the log, the allocator, the service manager and the exit code.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is that of the private items too: cargo doc --document-private-items"
)]

// The modules, whose reading order and directions are in ARCHITECTURE.md. All is the crate's own but what the table above names, and
// `parts`, so that the compiler sees what is unused.
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
pub use wiring::{Node, Services, StartError, run, tell};

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

//! What the command line asks for, and how much of everything that means.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measures weir beside a bare Pingora proxy.
#[derive(Parser)]
#[command(name = "passthrough")]
pub(crate) struct Options {
    /// A few seconds with little load, to see that everything works; the numbers mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds; each measures every proxy once, in alternating order [default: 7, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: Option<u16>,
    /// Only these phases
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    phases: Vec<Phase>,
    /// Leave out weir with the Redis store even when redis-server is installed
    #[arg(long)]
    pub(crate) no_redis: bool,
    /// Fail instead of leaving out weir with the Redis store when redis-server is missing
    #[arg(long, conflicts_with = "no_redis")]
    pub(crate) need_redis: bool,
    /// Write all numbers of all rounds to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by cargo bench: run only when this is part of the bench's name
    #[arg(hide = true)]
    filter: Option<String>,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// Small answers in one piece, one at a time and many at a time
    Unary,
    /// Time to the first byte of a streamed answer, one at a time
    FirstByte,
    /// Many streams at the pace of a model
    Paced,
    /// Streams as fast as they go
    Unpaced,
    /// Many open streams that are silent
    Memory,
}

/// How much of everything.
pub(crate) struct Scale {
    /// Rounds of every phase.
    pub(crate) rounds: usize,
    /// Requests of one connection, one after the other.
    pub(crate) unary_single: usize,
    /// Connections and requests of each.
    pub(crate) unary_many: (usize, usize),
    /// Samples of each proxy per round.
    pub(crate) first_bytes: usize,
    /// Paced streams.
    pub(crate) paced: Streams,
    /// Unpaced streams.
    pub(crate) unpaced: Streams,
    /// Silent streams held open.
    pub(crate) open_streams: usize,
    /// Rounds of the memory phase, each with fresh processes.
    pub(crate) memory_rounds: usize,
}

/// A load of streams.
#[derive(Clone, Copy)]
pub(crate) struct Streams {
    /// Open at once.
    pub(crate) at_once: usize,
    /// Streams on each connection, one after the other.
    pub(crate) repeats: usize,
    /// Deltas of each.
    pub(crate) deltas: usize,
    /// Between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

impl Options {
    /// Whether the filter of `cargo bench FILTER` means this bench.
    pub(crate) fn is_selected(&self) -> bool {
        self.filter
            .as_deref()
            .is_none_or(|filter| "passthrough".contains(filter))
    }

    /// Whether the phase is to be measured.
    pub(crate) fn wants(&self, phase: Phase) -> bool {
        self.phases.is_empty() || self.phases.contains(&phase)
    }

    /// How much of everything.
    pub(crate) fn scale(&self) -> Scale {
        let rounds = |default: usize| self.rounds.map_or(default, usize::from);
        if self.quick {
            return Scale {
                rounds: rounds(1),
                unary_single: 50,
                unary_many: (8, 10),
                first_bytes: 50,
                paced: Streams {
                    at_once: 16,
                    repeats: 1,
                    deltas: 20,
                    gap_ms: 5,
                },
                unpaced: Streams {
                    at_once: 8,
                    repeats: 2,
                    deltas: 100,
                    gap_ms: 0,
                },
                open_streams: 50,
                memory_rounds: rounds(1),
            };
        }
        Scale {
            rounds: rounds(7),
            unary_single: 2_000,
            unary_many: (32, 250),
            first_bytes: 1_000,
            paced: Streams {
                at_once: 200,
                repeats: 2,
                deltas: 100,
                gap_ms: 20,
            },
            unpaced: Streams {
                at_once: 32,
                repeats: 10,
                deltas: 500,
                gap_ms: 0,
            },
            open_streams: 1_000,
            memory_rounds: rounds(7).min(3),
        }
    }
}

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
    /// Beside LiteLLM and Portkey instead of nginx and HAProxy, fewer requests, and of the phases unary, ten-chunks, paced and
    /// memory. pip and npm install them below the target folder. What they do and do not do is printed as well [default: 3 rounds]
    #[arg(long)]
    pub(crate) gateways: bool,
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
    /// Bodies of 1 MB with small answers
    Large,
    /// Short streams, each chunk by itself
    TenChunks,
    /// Time to the first byte of a streamed answer, one at a time
    FirstByte,
    /// Delays of first bytes and of chunks, at rates far below what a proxy can bear
    Delays,
    /// Many streams at the pace of a model
    Paced,
    /// Streams as fast as they go
    Unpaced,
    /// Small requests, streams and larger bodies at a steady rate
    Mixture,
    /// Many open streams that talk slowly
    Open,
    /// One worker on a core of its own: what a chunk costs by thread, among few streams and among many
    Pinned,
    /// Many open streams that are silent
    Memory,
}

impl Phase {
    /// As the options have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Large => "large",
            Self::TenChunks => "ten-chunks",
            Self::FirstByte => "first-byte",
            Self::Delays => "delays",
            Self::Paced => "paced",
            Self::Unpaced => "unpaced",
            Self::Mixture => "mixture",
            Self::Open => "open",
            Self::Pinned => "pinned",
            Self::Memory => "memory",
        }
    }
}

/// What is measured beside other gateways.
const GATEWAYS_PHASES: [Phase; 4] = [Phase::Unary, Phase::TenChunks, Phase::Paced, Phase::Memory];

/// How much of everything.
pub(crate) struct Scale {
    /// Rounds of every phase.
    pub(crate) rounds: usize,
    /// Whether a round comes before those that are measured, for programs that are compiled while they run.
    pub(crate) is_warmed_up: bool,
    /// Deltas of a small answer.
    pub(crate) small_deltas: usize,
    /// Requests of one connection, one after the other.
    pub(crate) unary_single: usize,
    /// Connections and requests of each.
    pub(crate) unary_many: (usize, usize),
    /// Connections and requests of each, with large bodies.
    pub(crate) large: (usize, usize),
    /// The text in a large body, in bytes.
    pub(crate) large_bytes: usize,
    /// Short streams.
    pub(crate) ten_chunks: Streams,
    /// Samples of each proxy per round.
    pub(crate) first_bytes: usize,
    /// Streams whose delays are measured.
    pub(crate) delayed: Delayed,
    /// How many of those there are a second.
    pub(crate) delayed_rates: Vec<u32>,
    /// Paced streams.
    pub(crate) paced: Streams,
    /// Unpaced streams.
    pub(crate) unpaced: Streams,
    /// Requests of several kinds at set times.
    pub(crate) mixture: Mixture,
    /// Many open streams.
    pub(crate) open: Open,
    /// Streams at a proxy on a core of its own: few of them, and many.
    pub(crate) pinned: [Open; 2],
    /// Silent streams held open.
    pub(crate) open_streams: usize,
    /// How long those are silent, in milliseconds: longer than it takes to open them.
    pub(crate) silence_ms: u64,
    /// Rounds of the memory phase, each with fresh processes.
    pub(crate) memory_rounds: usize,
}

/// Streams at set times.
#[derive(Clone, Copy)]
pub(crate) struct Delayed {
    /// Streams of each round.
    pub(crate) requests: usize,
    /// Deltas of each.
    pub(crate) deltas: usize,
    /// Between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

/// What one stream says.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Its deltas.
    pub(crate) deltas: usize,
    /// Between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

/// Requests of several kinds at set times.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    /// How many of them a second.
    pub(crate) rate: u32,
    /// Of each round.
    pub(crate) requests: usize,
    /// Short streams.
    pub(crate) short: Pace,
    /// Longer ones.
    pub(crate) paced: Pace,
    /// The text in a larger body, in bytes.
    pub(crate) body_bytes: usize,
}

/// Many streams that are open at once.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    /// How many.
    pub(crate) streams: usize,
    /// Deltas of each: enough for as long as it takes to open all, and to measure.
    pub(crate) deltas: usize,
    /// Between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
    /// How long is measured, in milliseconds.
    pub(crate) length_ms: u64,
    /// How often: each takes long.
    pub(crate) rounds: usize,
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
        let is_chosen = self.phases.is_empty() || self.phases.contains(&phase);
        is_chosen && (!self.gateways || GATEWAYS_PHASES.contains(&phase))
    }

    /// How much of everything.
    pub(crate) fn scale(&self) -> Scale {
        let rounds = |default: usize| self.rounds.map_or(default, usize::from);
        let scale = match (self.quick, self.gateways) {
            (true, _) => Scale::quick(rounds(1)),
            (false, true) => Scale::beside_gateways(rounds(3)),
            (false, false) => Scale::full(rounds(7)),
        };
        Scale {
            is_warmed_up: self.gateways,
            // They may take long to open the streams; after 15 s LiteLLM says something of its own.
            silence_ms: if self.gateways { 12_000 } else { scale.silence_ms },
            ..scale
        }
    }
}

impl Scale {
    /// Of what is measured there, fewer requests: they may take a hundred times as long.
    fn beside_gateways(rounds: usize) -> Self {
        let full = Self::full(rounds);
        Self {
            unary_single: 200,
            unary_many: (32, 100),
            ten_chunks: Streams {
                repeats: 10,
                ..full.ten_chunks
            },
            paced: Streams {
                at_once: 20,
                repeats: 1,
                deltas: 100,
                gap_ms: 50,
            },
            open_streams: 200,
            ..full
        }
    }

    fn full(rounds: usize) -> Self {
        Self {
            rounds,
            is_warmed_up: false,
            small_deltas: 8,
            unary_single: 2_000,
            unary_many: (32, 250),
            large: (4, 100),
            large_bytes: 1_000_000,
            ten_chunks: Streams {
                at_once: 32,
                repeats: 40,
                deltas: 10,
                gap_ms: 5,
            },
            first_bytes: 1_000,
            delayed: Delayed {
                requests: 2_000,
                deltas: 10,
                gap_ms: 20,
            },
            delayed_rates: vec![200, 500],
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
            mixture: Mixture {
                rate: 300,
                requests: 3_000,
                short: Pace { deltas: 10, gap_ms: 5 },
                paced: Pace {
                    deltas: 100,
                    gap_ms: 20,
                },
                body_bytes: 100_000,
            },
            open: Open {
                streams: 2_000,
                deltas: 30,
                gap_ms: 500,
                length_ms: 5_000,
                rounds: rounds.min(5),
            },
            pinned: Self::pinned(rounds.min(5)),
            open_streams: 1_000,
            silence_ms: 15_000,
            memory_rounds: rounds.min(3),
        }
    }

    /// The same rate of chunks from few streams and from many.
    fn pinned(rounds: usize) -> [Open; 2] {
        [(40, 350, 20), (2_000, 18, 1_000)].map(|(streams, deltas, gap_ms)| Open {
            streams,
            deltas,
            gap_ms,
            length_ms: 5_000,
            rounds,
        })
    }

    /// A little of everything.
    fn quick(rounds: usize) -> Self {
        Self {
            rounds,
            is_warmed_up: false,
            small_deltas: 8,
            unary_single: 50,
            unary_many: (8, 10),
            large: (2, 5),
            large_bytes: 1_000_000,
            ten_chunks: Streams {
                at_once: 8,
                repeats: 2,
                deltas: 10,
                gap_ms: 5,
            },
            first_bytes: 50,
            delayed: Delayed {
                requests: 50,
                deltas: 10,
                gap_ms: 5,
            },
            delayed_rates: vec![100],
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
            mixture: Mixture {
                rate: 100,
                requests: 60,
                short: Pace { deltas: 10, gap_ms: 5 },
                paced: Pace { deltas: 20, gap_ms: 10 },
                body_bytes: 100_000,
            },
            open: Open {
                streams: 50,
                deltas: 30,
                gap_ms: 100,
                length_ms: 500,
                rounds,
            },
            pinned: [
                Open {
                    streams: 4,
                    deltas: 60,
                    gap_ms: 20,
                    length_ms: 500,
                    rounds,
                },
                Open {
                    streams: 50,
                    deltas: 15,
                    gap_ms: 200,
                    length_ms: 500,
                    rounds,
                },
            ],
            open_streams: 50,
            silence_ms: 2_000,
            memory_rounds: rounds,
        }
    }
}

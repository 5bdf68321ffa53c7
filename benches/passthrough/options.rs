//! The options of the bench, and the amount of load that they select.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measures weir and a bare Pingora proxy, and compares them.
#[derive(Parser)]
#[command(name = "passthrough")]
pub(crate) struct Options {
    /// Measure for a few seconds with little load, to check that the bench works. The numbers have no meaning
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of rounds. Each round measures every proxy once, in alternating order [default: 7, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: Option<u16>,
    /// Compare weir with LiteLLM and Portkey instead of nginx and HAProxy, with fewer requests, and only in the phases unary,
    /// ten-chunks, paced and memory. pip and npm install both gateways in the target folder. The bench also prints which
    /// functions they have [default: 3 rounds]
    #[arg(long)]
    pub(crate) gateways: bool,
    /// Measure only these phases, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    phases: Vec<Phase>,
    /// Do not measure weir with the Redis store, even if redis-server is installed
    #[arg(long)]
    pub(crate) no_redis: bool,
    /// Fail if redis-server is missing, instead of not measuring weir with the Redis store
    #[arg(long, conflicts_with = "no_redis")]
    pub(crate) need_redis: bool,
    /// Write all numbers of all rounds to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// An option that cargo bench passes. Without it and without --quick, the bench measures nothing
    #[arg(long, hide = true)]
    bench: bool,
    /// A filter that cargo bench passes: run only if the bench's name contains this text
    #[arg(hide = true)]
    filter: Option<String>,
}

/// The parts of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// Small non-streaming answers, one at a time and many at a time
    Unary,
    /// Request bodies of 1 MB with small answers
    Large,
    /// Short streams of ten chunks, each sent separately
    TenChunks,
    /// Time to the first byte of a streamed answer, one at a time
    FirstByte,
    /// Delays of first bytes and of chunks, at rates far below a proxy's capacity
    Delays,
    /// Many streams at the speed of a model
    Paced,
    /// Streams at the maximum speed
    Unpaced,
    /// Small requests, streams and larger bodies at a steady rate
    Mixture,
    /// Many open streams with few chunks per second
    Open,
    /// A worker on a core of its own: the CPU time of a chunk by thread, with few streams and with many
    Pinned,
    /// Many open streams that are silent
    Memory,
}

impl Phase {
    /// Returns the name of the phase on the command line.
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

/// The phases that are measured in comparison with other gateways.
const GATEWAYS_PHASES: [Phase; 4] = [Phase::Unary, Phase::TenChunks, Phase::Paced, Phase::Memory];

/// The amount of load in each phase.
pub(crate) struct Scale {
    /// The number of rounds of every phase.
    pub(crate) rounds: usize,
    /// Whether an unmeasured round comes first, for programs that are compiled while they run.
    pub(crate) is_warmed_up: bool,
    /// The number of deltas of a small answer.
    pub(crate) small_deltas: usize,
    /// The number of requests on a single connection, one after the other.
    pub(crate) unary_single: usize,
    /// The number of connections, and of requests on each.
    pub(crate) unary_many: (usize, usize),
    /// The number of connections, and of requests with large bodies on each.
    pub(crate) large: (usize, usize),
    /// The length of the text in a large body, in bytes.
    pub(crate) large_bytes: usize,
    /// Short streams.
    pub(crate) ten_chunks: Streams,
    /// The number of samples of each proxy per round.
    pub(crate) first_bytes: usize,
    /// Streams whose delays are measured.
    pub(crate) delayed: Delayed,
    /// The rates of these streams, per second.
    pub(crate) delayed_rates: Vec<u32>,
    /// Paced streams.
    pub(crate) paced: Streams,
    /// Unpaced streams.
    pub(crate) unpaced: Streams,
    /// Requests of several kinds, sent at fixed times.
    pub(crate) mixture: Mixture,
    /// Many open streams.
    pub(crate) open: Open,
    /// Streams at a proxy on a core of its own: few streams, and many streams.
    pub(crate) pinned: [Open; 2],
    /// The number of silent streams that are held open.
    pub(crate) open_streams: usize,
    /// How long these streams are silent, in milliseconds. This is longer than it takes to open them.
    pub(crate) silence_ms: u64,
    /// The number of rounds of the memory phase, each with new processes.
    pub(crate) memory_rounds: usize,
}

/// Streams that begin at fixed times.
#[derive(Clone, Copy)]
pub(crate) struct Delayed {
    /// The number of streams in each round.
    pub(crate) requests: usize,
    /// The number of deltas of each stream.
    pub(crate) deltas: usize,
    /// The pause between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

/// The content of one stream.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// The number of deltas.
    pub(crate) deltas: usize,
    /// The pause between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

/// Requests of several kinds, sent at fixed times.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    /// The number of requests per second.
    pub(crate) rate: u32,
    /// The number of requests in each round.
    pub(crate) requests: usize,
    /// Short streams.
    pub(crate) short: Pace,
    /// Longer streams.
    pub(crate) paced: Pace,
    /// The length of the text in a larger body, in bytes.
    pub(crate) body_bytes: usize,
}

/// Many streams that are open at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    /// The number of streams.
    pub(crate) streams: usize,
    /// The number of deltas of each stream. The streams last until all are open and the measurement has ended.
    pub(crate) deltas: usize,
    /// The pause between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
    /// The duration of the measurement, in milliseconds.
    pub(crate) length_ms: u64,
    /// The number of rounds, which is small because each round takes long.
    pub(crate) rounds: usize,
}

/// A load of streams.
#[derive(Clone, Copy)]
pub(crate) struct Streams {
    /// The number of streams that are open at the same time.
    pub(crate) at_once: usize,
    /// The number of streams on each connection, one after the other.
    pub(crate) repeats: usize,
    /// The number of deltas of each stream.
    pub(crate) deltas: usize,
    /// The pause between two deltas, in milliseconds.
    pub(crate) gap_ms: u64,
}

impl Options {
    /// Whether the filter of `cargo bench FILTER` selects this bench.
    pub(crate) fn is_selected(&self) -> bool {
        self.filter
            .as_deref()
            .is_none_or(|filter| "passthrough".contains(filter))
    }

    /// Whether the options select the phase.
    pub(crate) fn wants(&self, phase: Phase) -> bool {
        let is_chosen = self.phases.is_empty() || self.phases.contains(&phase);
        is_chosen && (!self.gateways || GATEWAYS_PHASES.contains(&phase))
    }

    /// The amount of load in each phase.
    pub(crate) fn scale(&self) -> Scale {
        let rounds = |default: usize| self.rounds.map_or(default, usize::from);
        let scale = match (self.quick, self.gateways) {
            (true, _) => Scale::quick(rounds(1)),
            (false, true) => Scale::beside_gateways(rounds(3)),
            (false, false) => Scale::full(rounds(7)),
        };
        Scale {
            is_warmed_up: self.gateways,
            // Other gateways may take long to open the streams. After 15 s, LiteLLM sends an event of its own.
            silence_ms: if self.gateways { 12_000 } else { scale.silence_ms },
            ..scale
        }
    }
}

impl Scale {
    /// The load for the comparison with other gateways. It has fewer requests, because they may take a hundred times as long.
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

    /// The same rate of chunks, once from few streams and once from many.
    fn pinned(rounds: usize) -> [Open; 2] {
        [(40, 350, 20), (2_000, 18, 1_000)].map(|(streams, deltas, gap_ms)| Open {
            streams,
            deltas,
            gap_ms,
            length_ms: 5_000,
            rounds,
        })
    }

    /// A small load in every phase.
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

//! What is asked, of whom, and how often.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    Options, counted,
    driver::{Connection, Expect},
    fleet::{self, Fleet, Proxy, RedisRow, Script},
    node::{model_of, translated_model},
    profile::Profile,
    row::Subject,
};

/// Bytes of text in a delta: about three tokens.
const DELTA_BYTES: usize = 12;

/// Deltas of a small answer.
const SMALL_DELTAS: usize = 8;

/// Deltas of a stream: with what stands before and behind them it has about 100 events.
const STREAM_DELTAS: usize = 94;

/// Between two deltas of a stream, so that each comes in a read of its own although callgrind makes everything slow.
const STREAM_GAP: Duration = Duration::from_millis(6);

/// Requests before the counters are set to zero: what is set up once is not counted.
const WARM: usize = 5;

/// A part of the table.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// What the row is called.
    pub(crate) name: &'static str,
    ask: Ask,
    /// Requests that are counted.
    count: usize,
    /// Whether weir with the Redis store is asked, too: it makes no difference to how a protocol is read.
    redis: RedisRow,
    /// How many times what was saved it may cost.
    tolerance: f64,
}

#[derive(Clone, Copy)]
enum Ask {
    Messages {
        stream: bool,
        bytes: usize,
    },
    Count,
    Responses {
        stream: bool,
    },
    Gemini {
        stream: bool,
    },
    /// A stream of the Messages protocol, which weir translates from `chat/completions`.
    ChatToMessages,
    /// A stream of the Responses protocol, which weir translates from `chat/completions`.
    ChatToResponses,
}

/// Of one proxy, per request.
pub(crate) struct Cost {
    /// The proxy that was asked.
    pub(crate) subject: Subject,
    /// What was counted of all requests.
    pub(crate) profile: Profile,
    /// How many they were.
    pub(crate) requests: u64,
}

/// A load and what it costs each proxy.
pub(crate) struct Measured {
    /// What the load is called in the table.
    pub(crate) name: &'static str,
    /// The costs, the bare proxy's first.
    pub(crate) costs: Vec<Cost>,
    /// How many times what was saved they may be.
    pub(crate) tolerance: f64,
}

/// For answers in one piece, whose counts differ by less than half a percent.
const TOLERANCE: f64 = 1.03;

/// For streams: how many events come in one read, and how often the cost so far is computed, goes by time.
const STREAM_TOLERANCE: f64 = 1.15;

/// Answers in one piece.
const SMALL: [Load; 6] = [
    small(
        "small request, Messages",
        Ask::Messages {
            stream: false,
            bytes: 0,
        },
        400,
        RedisRow::In,
    ),
    small(
        "small request, Responses",
        Ask::Responses { stream: false },
        200,
        RedisRow::Out,
    ),
    small(
        "small request, Gemini",
        Ask::Gemini { stream: false },
        200,
        RedisRow::Out,
    ),
    small("count of tokens", Ask::Count, 200, RedisRow::Out),
    small(
        "request of 2 KB",
        Ask::Messages {
            stream: false,
            bytes: 2_000,
        },
        200,
        RedisRow::Out,
    ),
    small(
        "request of 1 MB",
        Ask::Messages {
            stream: false,
            bytes: 1_000_000,
        },
        10,
        RedisRow::Out,
    ),
];

/// Streams, each delta by itself.
const STREAMS: [Load; 5] = [
    stream(
        "stream of 100 events, Messages",
        Ask::Messages { stream: true, bytes: 0 },
        RedisRow::In,
    ),
    stream(
        "stream of 100 events, Responses",
        Ask::Responses { stream: true },
        RedisRow::Out,
    ),
    stream(
        "stream of 100 events, Gemini",
        Ask::Gemini { stream: true },
        RedisRow::Out,
    ),
    // Each costs more than its client's native stream by the translation of its request and of 94 text deltas.
    stream(
        "stream of 100 events, chat to Messages",
        Ask::ChatToMessages,
        RedisRow::Out,
    ),
    stream(
        "stream of 100 events, chat to Responses",
        Ask::ChatToResponses,
        RedisRow::Out,
    ),
];

const fn small(name: &'static str, ask: Ask, count: usize, redis: RedisRow) -> Load {
    Load {
        name,
        ask,
        count,
        redis,
        tolerance: TOLERANCE,
    }
}

const fn stream(name: &'static str, ask: Ask, redis: RedisRow) -> Load {
    Load {
        name,
        ask,
        count: 20,
        redis,
        tolerance: STREAM_TOLERANCE,
    }
}

/// Asks for everything that the options want.
pub(crate) async fn measure(options: &Options) -> Result<Vec<Measured>, String> {
    let mut measured = Vec::new();
    for (loads, deltas, gap) in [
        (&SMALL[..], SMALL_DELTAS, Duration::ZERO),
        (&STREAMS[..], STREAM_DELTAS, STREAM_GAP),
    ] {
        let wanted: Vec<Load> = loads
            .iter()
            .copied()
            .filter(|load| load.name.contains(&options.only))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let redis = match fleet::has_redis_server() && wanted.iter().any(|load| load.redis == RedisRow::In) {
            true => RedisRow::In,
            false => RedisRow::Out,
        };
        let script = Script {
            deltas,
            delta_bytes: DELTA_BYTES,
            gap,
        };
        let fleet = Fleet::launch(script, redis, counted::command);
        for load in wanted {
            let mut costs = Vec::new();
            for proxy in &fleet.proxies {
                if proxy.subject != Subject::Redis || load.redis == RedisRow::In {
                    costs.push(cost(&fleet, proxy, &load, options).await?);
                }
            }
            measured.push(Measured {
                name: load.name,
                costs,
                tolerance: load.tolerance,
            });
        }
    }
    Ok(measured)
}

async fn cost(fleet: &Fleet, proxy: &Proxy, load: &Load, options: &Options) -> Result<Cost, String> {
    let said = |bad: String| format!("{}, {}: {bad}", proxy.subject.name(), load.name);
    let mut direct = Connection::new(fleet.provider);
    let reference = direct
        .ask(&load.ask.request("any-key"), Expect::Anything)
        .await
        .map_err(said)?;
    let request: Arc<[u8]> = load.ask.request(&proxy.key).into();
    let mut connection = Connection::new(proxy.address);
    for _ in 0..WARM {
        connection.ask(&request, Expect::Anything).await.map_err(said)?;
    }
    let count = if options.quick {
        load.count.div_ceil(20)
    } else {
        load.count
    };
    counted::zero(&proxy.process);
    for _ in 0..count {
        let answer = connection.ask(&request, Expect::Anything).await.map_err(said)?;
        load.ask.compare(&answer.body, &reference.body).map_err(said)?;
    }
    let profile = match &options.keep {
        Some(folder) => {
            let name = format!("{}-{}", load.name.replace([' ', ','], "-"), proxy.subject.name());
            counted::keep(&proxy.process, &proxy.home, folder, &name)
        }
        None => counted::take(&proxy.process, &proxy.home),
    };
    Ok(Cost {
        subject: proxy.subject,
        profile,
        requests: count as u64,
    })
}

impl Ask {
    fn protocol(self) -> &'static str {
        match self {
            Self::Messages { .. } | Self::Count | Self::ChatToMessages => "messages",
            Self::Responses { .. } | Self::ChatToResponses => "responses",
            Self::Gemini { .. } => "gemini",
        }
    }

    fn path(self) -> String {
        match self {
            Self::Messages { .. } | Self::ChatToMessages => "/v1/messages".to_owned(),
            Self::Count => "/v1/messages/count_tokens".to_owned(),
            Self::Responses { .. } | Self::ChatToResponses => "/v1/responses".to_owned(),
            Self::Gemini { stream } => {
                let verb = if stream {
                    "streamGenerateContent?alt=sse"
                } else {
                    "generateContent"
                };
                format!("/v1beta/models/{}:{verb}", model_of(self.protocol()))
            }
        }
    }

    fn body(self) -> Value {
        let (model, system) = (model_of(self.protocol()), "You are a terse assistant.");
        let text = "Tell me what a weir does, in a few words.";
        match self {
            Self::Messages { stream, bytes } => json!({
                "model": model, "system": system, "max_tokens": 4096, "stream": stream,
                "messages": [{ "role": "user", "content": format!("{text}{}", " A weir holds water.".repeat(bytes / 20)) }],
            }),
            Self::ChatToMessages => json!({
                "model": translated_model("chat", "messages"), "system": system, "max_tokens": 4096, "stream": true,
                "messages": [{ "role": "user", "content": text }],
            }),
            Self::Count => json!({
                "model": model, "system": system, "messages": [{ "role": "user", "content": text }],
            }),
            Self::ChatToResponses => json!({
                "model": translated_model("chat", "responses"), "instructions": system, "input": text,
                "max_output_tokens": 4096, "stream": true,
            }),
            Self::Responses { stream } => json!({
                "model": model, "instructions": system, "input": text, "max_output_tokens": 4096, "stream": stream,
            }),
            Self::Gemini { .. } => json!({
                "systemInstruction": { "parts": [{ "text": system }] },
                "contents": [{ "role": "user", "parts": [{ "text": text }] }],
            }),
        }
    }

    fn request(self, key: &str) -> Vec<u8> {
        let credential = match self {
            Self::Messages { .. } | Self::Count | Self::ChatToMessages => {
                format!("x-api-key: {key}\r\nanthropic-version: 2023-06-01")
            }
            Self::Responses { .. } | Self::ChatToResponses => format!("authorization: Bearer {key}"),
            Self::Gemini { .. } => format!("x-goog-api-key: {key}"),
        };
        let body = self.body().to_string();
        format!(
            "POST {} HTTP/1.1\r\nhost: gateway.test\r\n{credential}\r\naccept: application/json\r\n\
             user-agent: weir-passthrough\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path(),
            body.len()
        )
        .into_bytes()
    }

    /// An answer through a proxy has the bytes that the provider sends directly, but for the last words of weir's own
    /// behind a stream of the Responses protocol. One that weir has translated has as many deltas, and the protocol's end.
    fn compare(self, answer: &[u8], reference: &[u8]) -> Result<(), String> {
        let translated = match self {
            Self::ChatToMessages => Some(("\"text_delta\"", "event: message_stop")),
            Self::ChatToResponses => Some(("\"response.output_text.delta\"", "event: response.completed")),
            Self::Messages { .. } | Self::Count | Self::Responses { .. } | Self::Gemini { .. } => None,
        };
        if let Some((delta, end)) = translated {
            let deltas = |body: &[u8]| String::from_utf8_lossy(body).matches(delta).count();
            let has_end = String::from_utf8_lossy(answer).contains(end);
            return match has_end && deltas(answer) == deltas(reference) {
                true => Ok(()),
                false => Err("not the whole answer of the provider".to_owned()),
            };
        }
        let rest = answer
            .strip_prefix(reference)
            .ok_or("differs from what the provider sends")?;
        match rest {
            b"" => Ok(()),
            b"data: [DONE]\n\n" if matches!(self, Self::Responses { stream: true }) => Ok(()),
            _ => Err("more than the provider sends".to_owned()),
        }
    }
}

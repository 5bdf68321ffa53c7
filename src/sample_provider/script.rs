//! Scripts, which determine the behaviour of the sample provider. They come from flags, the model's name and a mark in the
//! prompt.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::Value;

/// The maximum of `deltas`.
pub(crate) const DELTAS_MAX: usize = 100_000;
/// The maximum of `delta_bytes`.
pub(crate) const DELTA_BYTES_MAX: usize = 1 << 20;
/// The maximum of `deltas` times `delta_bytes`. It limits the memory for an answer, which is rendered completely before it is
/// sent.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The maximum of `gap_ms` and `ttfb_ms`, in milliseconds.
pub(crate) const PAUSE_MS_MAX: u64 = 600_000;
/// The maximum of each of the token counts `cache_read`, `cache_write` and `hidden_tokens`.
pub(crate) const CACHE_TOKENS_MAX: u64 = 1_000_000_000;

const DELTA_BYTES_DEFAULT: usize = 16;

/// One layer of a script. A field that is `None` leaves the value of the layer below unchanged. The lowest layer comes from
/// flags. The layer above it comes from the model's name. The highest layer comes from the mark in the prompt.
///
/// In a model name, the words after `sample-` are orders, separated by `-`. The prefix `sample-` must be at the start of the name
/// or follow a `-`. The orders are `slow`, `long`, `cut`, `stall`, `inband`, `gzip`, `html`, `nousage`, `absurd`, `zero`,
/// `negative`, `reset`, `half`, `native`, or a status from 400 to
/// 599. Other words have no effect. In a mark, the keys are the names of the fields of this type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleScript {
    /// The number of text deltas.
    pub deltas: Option<usize>,
    /// The number of bytes of text in a delta. Characters are never split.
    pub delta_bytes: Option<usize>,
    /// The pause before each delta of a stream except the first, in milliseconds.
    pub gap_ms: Option<u64>,
    /// The pause before the head of the response, in milliseconds.
    pub ttfb_ms: Option<u64>,
    /// The HTTP status. From 400 on, the body is an error in the protocol's form.
    pub status: Option<u16>,
    /// The value of the `retry-after` header in seconds, in any protocol.
    pub retry_after: Option<u32>,
    /// The number of deltas after which a stream breaks off. If this field is set, a non-streaming body breaks off halfway.
    pub cut_after: Option<usize>,
    /// The number of deltas after which a stream stalls: it sends nothing more, but its connection stays open. If this field is
    /// set, a non-streaming body stalls halfway.
    pub stall_after: Option<usize>,
    /// The number of deltas after which a stream sends an error of the protocol and ends properly. If this field is set, a
    /// non-streaming body is an error with status 200.
    pub in_band_error_after: Option<usize>,
    /// The style in which usage is reported.
    pub usage: Option<UsageStyle>,
    /// The content coding of the body.
    pub encoding: Option<BodyEncoding>,
    /// The value of the `content-type` header instead of the default. With `text/html`, the body of an error is an HTML page.
    pub content_type: Option<String>,
    /// Whether errors have a provider's own form, with `code`, `message` and `type` at the root.
    pub native_errors: Option<bool>,
    /// The way in which a break ends the connection.
    pub close: Option<CutStyle>,
    /// Whether a break occurs in the middle of an event.
    pub half_event: Option<bool>,
    /// The number of additional input tokens that are reported as read from a cache.
    pub cache_read: Option<u64>,
    /// The number of additional input tokens that are reported as written to a cache.
    pub cache_write: Option<u64>,
    /// The number of output tokens of hidden reasoning. These tokens are billed and are in the usage, but not in the content.
    pub hidden_tokens: Option<u64>,
    /// Whether prompts are cached. If they are, the part of a prompt that was sent before is reported as read from the cache, and
    /// the newly stored part is reported as written to the cache.
    pub prompt_cache: Option<bool>,
    /// Whether the answer contains visible thinking, regardless of the request.
    pub thinking: Option<bool>,
    /// Whether system messages after the first message are accepted (`chat/completions`). They are accepted by default.
    pub system_inside: Option<bool>,
    /// The name of the tool that the answer calls. The answer calls it only if the request offers this tool and the last message
    /// of the request is not a tool result. Otherwise the answer is text.
    pub tool: Option<String>,
    /// The input for the called tool, as JSON: an object, or a string for a tool that takes free text.
    pub tool_input: Option<Value>,
    /// The model that the answer reports as its advisor (Messages). Only `usage.iterations` contains the advisor's tokens.
    pub advisor: Option<String>,
    /// The model that the answer reports as the fallback (Messages). The answer reports that the requested model declined
    /// immediately.
    pub fallback: Option<String>,
}

/// The style in which usage is reported. The ledger always contains the true counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageStyle {
    /// The true counts.
    True,
    /// No usage in any event or body.
    None,
    /// The largest 64-bit number for each count.
    Absurd,
    /// Zero for each count.
    Zero,
    /// -7 for each count.
    Negative,
}

/// The content coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// The body is not coded.
    Identity,
    /// The body is compressed with gzip. The encoder is flushed after each event.
    Gzip,
}

/// The way in which a break ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutStyle {
    /// The connection ends with FIN, without the terminating chunk.
    Broken,
    /// The body ends properly; only the protocol's final event is missing.
    Clean,
    /// The connection ends with RST. Over HTTP/2, the stream is reset.
    Reset,
}

impl SampleScript {
    /// Combines this layer with the layer `higher`, whose values have precedence.
    #[must_use]
    pub fn under(self, higher: Self) -> Self {
        Self {
            deltas: higher.deltas.or(self.deltas),
            delta_bytes: higher.delta_bytes.or(self.delta_bytes),
            gap_ms: higher.gap_ms.or(self.gap_ms),
            ttfb_ms: higher.ttfb_ms.or(self.ttfb_ms),
            status: higher.status.or(self.status),
            retry_after: higher.retry_after.or(self.retry_after),
            cut_after: higher.cut_after.or(self.cut_after),
            stall_after: higher.stall_after.or(self.stall_after),
            in_band_error_after: higher.in_band_error_after.or(self.in_band_error_after),
            usage: higher.usage.or(self.usage),
            encoding: higher.encoding.or(self.encoding),
            content_type: higher.content_type.or(self.content_type),
            native_errors: higher.native_errors.or(self.native_errors),
            close: higher.close.or(self.close),
            half_event: higher.half_event.or(self.half_event),
            cache_read: higher.cache_read.or(self.cache_read),
            cache_write: higher.cache_write.or(self.cache_write),
            hidden_tokens: higher.hidden_tokens.or(self.hidden_tokens),
            prompt_cache: higher.prompt_cache.or(self.prompt_cache),
            thinking: higher.thinking.or(self.thinking),
            system_inside: higher.system_inside.or(self.system_inside),
            tool: higher.tool.or(self.tool),
            tool_input: higher.tool_input.or(self.tool_input),
            advisor: higher.advisor.or(self.advisor),
            fallback: higher.fallback.or(self.fallback),
        }
    }

    /// Reads the layer in a model's name; it is empty if the name contains no orders.
    pub fn from_model(model: &str) -> Self {
        let mut script = Self::default();
        let orders = match model.strip_prefix("sample-") {
            Some(orders) => orders,
            None => match model.rsplit_once("-sample-") {
                Some((_, orders)) => orders,
                None => return script,
            },
        };
        for word in orders.split('-') {
            match word {
                "slow" => {
                    script.gap_ms = Some(200);
                    script.ttfb_ms = Some(1000);
                }
                "long" => script.deltas = Some(2000),
                "cut" => script.cut_after = Some(2),
                "stall" => script.stall_after = Some(2),
                "inband" => script.in_band_error_after = Some(2),
                "gzip" => script.encoding = Some(BodyEncoding::Gzip),
                "html" => script.content_type = Some("text/html".to_owned()),
                "nousage" => script.usage = Some(UsageStyle::None),
                "absurd" => script.usage = Some(UsageStyle::Absurd),
                "zero" => script.usage = Some(UsageStyle::Zero),
                "negative" => script.usage = Some(UsageStyle::Negative),
                "reset" => script.close = Some(CutStyle::Reset),
                "half" => script.half_event = Some(true),
                "native" => script.native_errors = Some(true),
                other => {
                    if let Some(status) = error_status(other) {
                        script.status = Some(status);
                    }
                }
            }
        }
        script
    }

    /// Reads the layer in the last mark of `prompt`; it is empty if there is no mark.
    pub fn from_prompt(prompt: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (key, value) in last_mark(prompt)? {
            script.set(key, value)?;
        }
        script.check()?;
        Ok(script)
    }

    /// Checks that every number is within its limits.
    pub fn check(&self) -> Result<(), ScriptError> {
        let bounded = |key, expected, holds| {
            if holds {
                Ok(())
            } else {
                Err(ScriptError::Value { key, expected })
            }
        };
        let deltas = self.deltas.unwrap_or(1);
        let delta_bytes = self.delta_bytes();
        bounded("deltas", "at most 100000", deltas <= DELTAS_MAX)?;
        bounded(
            "delta_bytes",
            "1 to 1048576",
            (1..=DELTA_BYTES_MAX).contains(&delta_bytes),
        )?;
        let total = deltas.saturating_mul(delta_bytes);
        bounded(
            "deltas",
            "so small that deltas times delta_bytes is at most 64 MiB",
            total <= ANSWER_BYTES_MAX,
        )?;
        bounded("gap_ms", "at most 600000", self.gap_ms.unwrap_or(0) <= PAUSE_MS_MAX)?;
        bounded("ttfb_ms", "at most 600000", self.ttfb_ms.unwrap_or(0) <= PAUSE_MS_MAX)?;
        bounded("status", "200 or 400 to 599", matches!(self.status(), 200 | 400..=599))?;
        bounded(
            "cache_read",
            "at most 1000000000",
            self.cache_read.unwrap_or(0) <= CACHE_TOKENS_MAX,
        )?;
        bounded(
            "cache_write",
            "at most 1000000000",
            self.cache_write.unwrap_or(0) <= CACHE_TOKENS_MAX,
        )?;
        bounded(
            "hidden_tokens",
            "at most 1000000000",
            self.hidden_tokens.unwrap_or(0) <= CACHE_TOKENS_MAX,
        )
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ScriptError> {
        match key {
            "deltas" => self.deltas = Some(number("deltas", value)?),
            "delta_bytes" => self.delta_bytes = Some(number("delta_bytes", value)?),
            "gap_ms" => self.gap_ms = Some(number("gap_ms", value)?),
            "ttfb_ms" => self.ttfb_ms = Some(number("ttfb_ms", value)?),
            "status" => self.status = Some(number("status", value)?),
            "retry_after" => self.retry_after = Some(number("retry_after", value)?),
            "cut_after" => self.cut_after = Some(number("cut_after", value)?),
            "stall_after" => self.stall_after = Some(number("stall_after", value)?),
            "in_band_error_after" => self.in_band_error_after = Some(number("in_band_error_after", value)?),
            "cache_read" => self.cache_read = Some(number("cache_read", value)?),
            "cache_write" => self.cache_write = Some(number("cache_write", value)?),
            "hidden_tokens" => self.hidden_tokens = Some(number("hidden_tokens", value)?),
            "usage" => self.usage = Some(usage_style(value)?),
            "encoding" => self.encoding = Some(encoding(value)?),
            "close" => self.close = Some(close(value)?),
            "half_event" => self.half_event = Some(boolean("half_event", value)?),
            "native_errors" => self.native_errors = Some(boolean("native_errors", value)?),
            "prompt_cache" => self.prompt_cache = Some(boolean("prompt_cache", value)?),
            "thinking" => self.thinking = Some(boolean("thinking", value)?),
            "system_inside" => self.system_inside = Some(boolean("system_inside", value)?),
            "content_type" => self.content_type = Some(content_type(value)?),
            "tool" => self.tool = Some(value.to_owned()),
            "advisor" => self.advisor = Some(value.to_owned()),
            "fallback" => self.fallback = Some(value.to_owned()),
            "tool_input" => self.tool_input = Some(tool_input(value)?),
            other => return Err(ScriptError::UnknownKey(shortened_word(other))),
        }
        Ok(())
    }

    pub(super) fn delta_bytes(&self) -> usize {
        self.delta_bytes.unwrap_or(DELTA_BYTES_DEFAULT)
    }

    /// The HTTP status of the response.
    pub(super) fn status(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    /// The pause between two deltas.
    pub(super) fn gap(&self) -> Duration {
        Duration::from_millis(self.gap_ms.unwrap_or(0))
    }

    /// The pause before the response head.
    pub(super) fn ttfb(&self) -> Duration {
        Duration::from_millis(self.ttfb_ms.unwrap_or(0))
    }

    /// The style in which usage is reported.
    pub(super) fn usage(&self) -> UsageStyle {
        self.usage.unwrap_or(UsageStyle::True)
    }

    /// The way in which a break ends the connection.
    pub(super) fn close(&self) -> CutStyle {
        self.close.unwrap_or(CutStyle::Broken)
    }
}

fn error_status(word: &str) -> Option<u16> {
    word.parse().ok().filter(|status| (400..=599).contains(status))
}

fn number<T: std::str::FromStr>(key: &'static str, value: &str) -> Result<T, ScriptError> {
    value.parse().map_err(|_| ScriptError::Value {
        key,
        expected: "a whole number",
    })
}

fn boolean(key: &'static str, value: &str) -> Result<bool, ScriptError> {
    value.parse().map_err(|_| ScriptError::Value {
        key,
        expected: "true or false",
    })
}

fn usage_style(value: &str) -> Result<UsageStyle, ScriptError> {
    match value {
        "true" => Ok(UsageStyle::True),
        "none" => Ok(UsageStyle::None),
        "absurd" => Ok(UsageStyle::Absurd),
        "zero" => Ok(UsageStyle::Zero),
        "negative" => Ok(UsageStyle::Negative),
        _ => Err(ScriptError::Value {
            key: "usage",
            expected: "true, none, absurd, zero or negative",
        }),
    }
}

fn encoding(value: &str) -> Result<BodyEncoding, ScriptError> {
    match value {
        "identity" => Ok(BodyEncoding::Identity),
        "gzip" => Ok(BodyEncoding::Gzip),
        _ => Err(ScriptError::Value {
            key: "encoding",
            expected: "identity or gzip",
        }),
    }
}

fn close(value: &str) -> Result<CutStyle, ScriptError> {
    match value {
        "broken" => Ok(CutStyle::Broken),
        "clean" => Ok(CutStyle::Clean),
        "reset" => Ok(CutStyle::Reset),
        _ => Err(ScriptError::Value {
            key: "close",
            expected: "broken, clean or reset",
        }),
    }
}

fn content_type(value: &str) -> Result<String, ScriptError> {
    let valid = value.bytes().all(|byte| byte.is_ascii_graphic()) && value.contains('/');
    if valid {
        Ok(value.to_owned())
    } else {
        Err(ScriptError::Value {
            key: "content_type",
            expected: "a media type without spaces",
        })
    }
}

fn tool_input(value: &str) -> Result<Value, ScriptError> {
    let input = serde_json::from_str(value).ok();
    input
        .filter(|input: &Value| input.is_object() || input.is_string())
        .ok_or(ScriptError::Value {
            key: "tool_input",
            expected: "a JSON object or a JSON string",
        })
}

/// An error in a script. A request with such a script gets the status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A mark contains an unknown key. This variant contains the key.
    #[error("sample mark: the key `{0}` is unknown; the valid keys are {KEYS}")]
    UnknownKey(String),
    /// A value is not valid for its key.
    #[error("sample script: the value of `{key}` is invalid; it must be {expected}")]
    Value {
        key: &'static str,
        /// A description of the valid values.
        expected: &'static str,
    },
    /// A word of the mark does not have the form `key=value`. Contains the word.
    #[error("sample mark: `{0}` is not of the form key=value")]
    NotAPair(String),
    /// A mark is not closed with `]]`.
    #[error("sample mark: the end `]]` is missing")]
    NotClosed,
}

const KEYS: &str = "deltas, delta_bytes, gap_ms, ttfb_ms, status, retry_after, cut_after, stall_after, \
    in_band_error_after, usage, encoding, content_type, close, half_event, native_errors, cache_read, cache_write, \
    hidden_tokens, prompt_cache, thinking, system_inside, tool, tool_input, advisor, fallback";

/// The beginning of a mark such as `[[sample: deltas=20 gap_ms=5]]`. A mark contains words of the form `key=value`. A value that
/// begins with a brace or a quote is JSON and ends where the JSON ends: `[[sample: tool=Bash tool_input={"command": "echo a,
/// b"}]]`.
pub(super) const MARK_OPEN: &str = "[[sample:";
const MARK_CLOSE: &str = "]]";
const SEPARATORS: [char; 5] = [' ', '\t', '\r', '\n', ','];

/// The words of a mark, as pairs of key and value.
type MarkWords<'a> = Vec<(&'a str, &'a str)>;

/// Returns the words of the last mark in `prompt`; empty if there is no mark.
pub(super) fn last_mark(prompt: &str) -> Result<MarkWords<'_>, ScriptError> {
    match prompt.rsplit_once(MARK_OPEN) {
        Some((_, after)) => read_mark(after).map(|(words, _)| words),
        None => Ok(Vec::new()),
    }
}

/// Returns `prompt` without its marks. An unclosed mark extends to the end.
pub(super) fn without_marks(prompt: &str) -> String {
    let mut rest = prompt;
    let mut plain = String::with_capacity(prompt.len().min(1024));
    while let Some((before, after)) = rest.split_once(MARK_OPEN) {
        plain.push_str(before);
        rest = match read_mark(after) {
            Ok((_, rest)) => rest,
            Err(_) => after.split_once(MARK_CLOSE).map_or("", |(_, rest)| rest),
        };
    }
    plain.push_str(rest);
    plain.trim().to_owned()
}

/// Shortens a word for an error message.
pub(super) fn shortened_word(word: &str) -> String {
    word.chars().take(40).collect()
}

/// Parses a mark after its beginning. Returns the mark's words and the rest of the prompt.
fn read_mark(after: &str) -> Result<(MarkWords<'_>, &str), ScriptError> {
    let mut words = Vec::new();
    let mut rest = after;
    loop {
        rest = rest.trim_start_matches(SEPARATORS);
        if let Some(behind) = rest.strip_prefix(MARK_CLOSE) {
            return Ok((words, behind));
        }
        let (word, _) = rest.split_at_checked(word_length(rest)?).unwrap_or_default();
        let Some((key, value)) = word.split_once('=') else {
            return Err(ScriptError::NotAPair(shortened_word(word)));
        };
        let (_, behind) = rest.split_at_checked(key.len() + 1).unwrap_or_default();
        let length = json_length(behind).unwrap_or(value.len());
        let (value, behind) = behind.split_at_checked(length).unwrap_or_default();
        words.push((key, value));
        rest = behind;
    }
}

/// Returns the length in bytes of the word at the start of `rest`. The word ends before a separator or the end of the mark.
fn word_length(rest: &str) -> Result<usize, ScriptError> {
    let close = rest.find(MARK_CLOSE);
    match (rest.find(SEPARATORS), close) {
        (Some(separator), Some(close)) => Ok(separator.min(close)),
        (Some(separator), None) => Ok(separator),
        (None, Some(close)) => Ok(close),
        (None, None) => Err(ScriptError::NotClosed),
    }
}

/// Returns the length in bytes of the JSON object or string at the start of `rest`; `None` if `rest` does not start with such a
/// value.
fn json_length(rest: &str) -> Option<usize> {
    if !rest.starts_with(['{', '"']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

#[cfg(test)]
mod mark_tests {
    use super::*;

    #[test]
    fn json_ends_where_it_ends_whatever_is_in_it() {
        let prompt = r#"do [[sample: tool=Bash, tool_input={"command": "echo [[x]], y=1"} deltas=2]] it"#;
        let input = r#"{"command": "echo [[x]], y=1"}"#;
        assert_eq!(
            last_mark(prompt).unwrap(),
            [("tool", "Bash"), ("tool_input", input), ("deltas", "2")]
        );
        assert_eq!(without_marks(prompt), "do  it");
        assert_eq!(
            last_mark(r#"[[sample: tool_input="a b"]]"#).unwrap(),
            [("tool_input", r#""a b""#)]
        );
        assert!(last_mark("[[sample: tool_input={\"a b\" ]]").is_err());
    }

    #[test]
    fn what_is_not_closed_is_refused_and_not_said() {
        assert_eq!(last_mark("[[sample: gap_ms=1 "), Err(ScriptError::NotClosed));
        assert_eq!(last_mark("[[sample: gap_ms=1"), Err(ScriptError::NotClosed));
        assert_eq!(
            last_mark("[[sample: gap]]"),
            Err(ScriptError::NotAPair("gap".to_owned()))
        );
        assert_eq!(last_mark("nothing"), Ok(Vec::new()));
        assert_eq!(without_marks("a [[sample: x=1]]b [[sample: y"), "a b");
        assert_eq!(without_marks("plain"), "plain");
    }
}

//! The consumption log: a row for each billed request, and the lines of a row's charge.

#[cfg(test)]
pub(crate) mod row_json_tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::{
    keys::KeyId,
    ledger::ids::Tag,
    money::{
        NanoUsd,
        price::{Price, PriceLine},
    },
    wire::{JsonWriter, usage::Usage},
};

pub(crate) use crate::domain::money::price::CostShare;
pub use crate::domain::wire::usage::{PriceModifiers, UsageSource};

/// The number of days for which rows are retained.
pub(crate) const RETENTION_DAYS: u32 = 180;

/// The `outcome` in the row of a request that was running when weir crashed.
pub(crate) const CRASH: &str = "crash";

/// The maximum total length of a row's losses in bytes. Each loss counts with its length plus one. The last entry, the number of
/// further losses, is not included.
pub(crate) const LOSSES_BYTES_MAX: usize = 768;

/// The way in which a request reached weir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestTransport {
    /// An HTTP request of its own.
    #[default]
    Http,
    /// A message on the client's WebSocket.
    WebSocket,
}

impl RequestTransport {
    /// Returns the transport's name in rows and in the access log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "websocket",
        }
    }

    /// Returns the transport's name for a row; `None` for HTTP, which rows leave out.
    pub(crate) fn named(self) -> Option<&'static str> {
        (self != Self::Http).then_some(self.as_str())
    }

    /// Parses the name of a transport; `None` if no transport has this name.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Http, Self::WebSocket]
            .into_iter()
            .find(|transport| transport.as_str() == word)
    }

    /// Whether the request was a separate HTTP request.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_http(&self) -> bool {
        *self == Self::Http
    }
}

/// The translation of a request, as its row records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowTranslation {
    /// The protocols of client and provider: see [`Row::translated`].
    pub(crate) translated: Option<SmolStr>,
    /// The parts of the request and its answer that were adapted or dropped: see [`Row::losses`].
    pub(crate) losses: Vec<SmolStr>,
}

impl RowTranslation {
    /// Creates the translation of a row. Its list contains the losses, in order, as far as they fit into [`LOSSES_BYTES_MAX`]. A
    /// last entry such as `more 12` contains the number of further losses: those that do not fit, and the `omitted` ones.
    pub(crate) fn new(translated: &str, losses: impl IntoIterator<Item = String>, omitted: usize) -> Self {
        let (mut listed, mut bytes, mut more) = (Vec::new(), 0, omitted);
        for loss in losses {
            let after = bytes + loss.len() + 1;
            if after > LOSSES_BYTES_MAX {
                more += 1;
                continue;
            }
            bytes = after;
            listed.push(loss.into());
        }
        if more > 0 {
            listed.push(format_smolstr!("more {more}"));
        }
        Self {
            translated: Some(translated.into()),
            losses: listed,
        }
    }
}

/// A billed request in the consumption log. Its cost can be computed again from its usage, its modifiers and the prices in
/// `price_version`. If the row has parts, the usage, modifiers and prices of each part are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The time at which the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The time at which the request was admitted, by the store's clock, in milliseconds since the Unix epoch. The charge is
    /// added to the quota periods that contain this time.
    pub admitted_ms: i64,
    /// The request id that weir has assigned.
    pub request_id: SmolStr,
    /// The account that paid.
    pub account: SmolStr,
    /// The key of the request.
    pub key_id: KeyId,
    /// The protocol: `messages`, `responses` or `gemini`.
    pub protocol: SmolStr,
    /// The model's name as the client sent it, if it is a possible name of a model.
    pub model_asked: SmolStr,
    /// The catalogue model that served the request. The request was charged at this model's price.
    pub model: SmolStr,
    /// The provider that served the request.
    pub provider: SmolStr,
    /// The final HTTP status: the status that the client got, or 502 or 504 if a stream failed after its status 200.
    pub status: u16,
    /// How the request ended: [`crate::domain::faults::End::label`], or [`CRASH`] if weir crashed.
    pub outcome: SmolStr,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The tags that the client attached to the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The total consumption of the request, over all its parts.
    #[serde(flatten)]
    pub usage: Usage,
    /// Whether the usage was reported or estimated.
    pub usage_source: UsageSource,
    /// The consumption of each model; empty if only the requested model ran, in one price tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CostShare>,
    /// The properties of the answer that modify its price.
    #[serde(flatten)]
    pub modifiers: PriceModifiers,
    /// The version of the prices from which the charge was computed.
    pub price_version: SmolStr,
    /// The charge in nano-USD.
    pub cost_nano_usd: NanoUsd,
    /// The number of milliseconds from the request's arrival to its end.
    pub latency_ms: u64,
    /// The number of milliseconds from the request's arrival to the answer's first content; `None` if the answer had no content.
    pub ttft_ms: Option<u64>,
    /// The hold at the request's admission in nano-USD. The hold was placed in the store, allocated from a lease of the node, or
    /// granted by grace. `None` in a row of an earlier version of weir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_nano_usd: Option<NanoUsd>,
    /// The number of attempts at providers. `None` if it is unknown: in a row of an earlier version of weir, or after a crash
    /// before the first checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The transport by which the request reached weir. In JSON, it is left out for an HTTP request.
    #[serde(default, skip_serializing_if = "RequestTransport::is_http")]
    pub transport: RequestTransport,
    /// The protocols of client and provider of a translated request, for example `responses->chat`. `None` for other requests, and
    /// for a request that was running when weir crashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translated: Option<SmolStr>,
    /// A list of what the translation has adapted or dropped. Each entry names a member of the request or a kind of content of
    /// the answer, for example `dropped tools[9]`. Values are never included. The list contains as many entries as fit into 768
    /// bytes. If there are more, the last entry is the number of the omitted ones, such as `more 12`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<SmolStr>,
}

/// A line of a row's charge: one kind of tokens or calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChargeLine {
    /// The model that consumed the tokens or calls; `None` if only the requested model ran, and for the request fee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(flatten)]
    pub line: PriceLine,
}

/// Returns the lines of a row's charge. This is possible only while the row's prices are still in the catalogue. `find` returns
/// the current price of a catalogue model at the row's provider. The function returns `None` if a price is missing or has another
/// version than in the row. It also returns `None` if the lines do not add up to the charge, because no lines are better than
/// wrong lines.
pub(crate) fn price_lines(row: &Row, find: impl Fn(&str) -> Option<Arc<Price>>) -> Option<Vec<ChargeLine>> {
    let of_version = |model: &str, version: &str| find(model).filter(|price| price.version() == version);
    let (usage, modifiers) = (&row.usage, &row.modifiers);
    let own = of_version(&row.model, &row.price_version)?;
    let mut sum = own.request_fee(usage);
    let mut lines = Vec::new();
    if row.parts.is_empty() {
        let above = own.tier_above(usage, modifiers);
        sum = sum.plus(own.sum_in_tier(usage, modifiers, above));
        let whole = own.lines_in_tier(usage, modifiers, above);
        lines.extend(whole.into_iter().map(|line| ChargeLine { model: None, line }));
    }
    for part in &row.parts {
        let version = part.price_version.as_deref().unwrap_or(&row.price_version);
        let price = of_version(part.priced_as.as_deref().unwrap_or(&part.model), version)?;
        let (modifiers, above) = (modifiers.for_run(part.run), part.above_input_tokens);
        sum = sum.plus(price.sum_in_tier(&part.usage, &modifiers, above));
        let of_part = price.lines_in_tier(&part.usage, &modifiers, above);
        lines.extend(of_part.into_iter().map(|line| ChargeLine {
            model: Some(part.model.clone()),
            line,
        }));
    }
    lines.extend(own.fee_line(usage).map(|line| ChargeLine { model: None, line }));
    (sum.rounded_up() == row.cost_nano_usd).then_some(lines)
}

impl Row {
    /// Appends the row's JSON to `out`.
    ///
    /// # Errors
    /// The same errors as [`serde_json::to_writer`].
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let Self {
            time_ms,
            admitted_ms,
            request_id,
            account,
            key_id,
            protocol,
            model_asked,
            model,
            provider,
            status,
            outcome,
            stream,
            tags,
            usage,
            usage_source,
            parts,
            modifiers,
            price_version,
            cost_nano_usd,
            latency_ms,
            ttft_ms,
            hold_nano_usd,
            attempts,
            transport,
            translated,
            losses,
        } = self;
        let mut json = JsonWriter(out);
        json.value(r#"{"time_ms":"#, time_ms)?;
        json.value(r#","admitted_ms":"#, admitted_ms)?;
        json.text(r#","request_id":"#, request_id)?;
        json.text(r#","account":"#, account)?;
        json.text(r#","key_id":"#, key_id.as_str())?;
        json.text(r#","protocol":"#, protocol)?;
        json.text(r#","model_asked":"#, model_asked)?;
        json.text(r#","model":"#, model)?;
        json.text(r#","provider":"#, provider)?;
        json.value(r#","status":"#, status)?;
        json.text(r#","outcome":"#, outcome)?;
        json.value(r#","stream":"#, stream)?;
        json.list(r#","tags":"#, tags)?;
        json.usage(usage)?;
        json.value(r#","usage_source":"#, usage_source)?;
        json.list(r#","parts":"#, parts)?;
        json.modifiers(modifiers)?;
        json.text(r#","price_version":"#, price_version)?;
        json.value(r#","cost_nano_usd":"#, cost_nano_usd)?;
        json.value(r#","latency_ms":"#, latency_ms)?;
        json.value(r#","ttft_ms":"#, ttft_ms)?;
        json.optional(r#","hold_nano_usd":"#, hold_nano_usd.as_ref())?;
        json.optional(r#","attempts":"#, attempts.as_ref())?;
        for (before, text) in [
            (r#","transport":"#, transport.named()),
            (r#","translated":"#, translated.as_deref()),
        ] {
            if let Some(text) = text {
                json.text(before, text)?;
            }
        }
        json.list(r#","losses":"#, losses)?;
        json.put("}");
        Ok(())
    }
}

impl JsonWriter<'_> {
    fn usage(&mut self, usage: &Usage) -> serde_json::Result<()> {
        let Usage {
            input_uncached,
            cache_read,
            cache_write_short,
            cache_write_long,
            output_text,
            output_reasoning,
            tool_input,
            web_searches,
            web_fetches,
            file_searches,
            code_interpreter_calls,
            image_generations,
            input_audio,
            input_image,
            cache_read_audio,
            cache_read_image,
            output_audio,
            output_image,
        } = usage;
        for (before, count) in [
            (r#","input_uncached":"#, input_uncached),
            (r#","cache_read":"#, cache_read),
            (r#","cache_write_short":"#, cache_write_short),
            (r#","cache_write_long":"#, cache_write_long),
            (r#","output_text":"#, output_text),
            (r#","output_reasoning":"#, output_reasoning),
            (r#","tool_input":"#, tool_input),
            (r#","web_searches":"#, web_searches),
            (r#","web_fetches":"#, web_fetches),
            (r#","file_searches":"#, file_searches),
            (r#","code_interpreter_calls":"#, code_interpreter_calls),
            (r#","image_generations":"#, image_generations),
            (r#","input_audio":"#, input_audio),
            (r#","input_image":"#, input_image),
            (r#","cache_read_audio":"#, cache_read_audio),
            (r#","cache_read_image":"#, cache_read_image),
            (r#","output_audio":"#, output_audio),
            (r#","output_image":"#, output_image),
        ] {
            if *count > 0 {
                self.value(before, count)?;
            }
        }
        Ok(())
    }

    fn modifiers(&mut self, modifiers: &PriceModifiers) -> serde_json::Result<()> {
        let PriceModifiers {
            service_tier,
            speed,
            geo,
        } = modifiers;
        for (before, name) in [
            (r#","service_tier":"#, service_tier),
            (r#","speed":"#, speed),
            (r#","geo":"#, geo),
        ] {
            if let Some(name) = name {
                self.text(before, name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        keys::KeyId,
        ledger::consumption::{PriceModifiers, UsageSource},
        money::{
            NanoUsd,
            price::{Charge, OtherModel, PriceList, PricedRun, charge},
        },
        wire::usage::{Run, RunKind, Usage, total_usage},
    };

    const LIST: &str = "version = \"v1\"\n\
        [[price]]\nname = \"small\"\ntiers = [{ input = \"0.0003\", output = \"1\" }, { above_input_tokens = 100, input = \"3\", output = \"6\" }]\n\
        per_call = { web_search = \"0.01\", request = \"0.5\" }\nmultipliers = { speed = { fast = \"2\" }, geo = { us = \"1.1\" } }\n\
        [[price]]\nname = \"large\"\ntiers = [{ input = \"10\", output = \"50\" }]";

    fn find(name: &str) -> Option<Arc<Price>> {
        let list = PriceList::read("p.toml", LIST).unwrap();
        list.find(name, "p").map(Arc::clone)
    }

    fn modifiers() -> PriceModifiers {
        PriceModifiers {
            speed: Some("fast".into()),
            geo: Some("us".into()),
            ..PriceModifiers::default()
        }
    }

    fn row(usage: Usage, charged: Charge) -> Row {
        Row {
            time_ms: 0,
            admitted_ms: 0,
            request_id: "r".into(),
            account: "a".into(),
            key_id: KeyId::parse("key_0000000000000001").unwrap(),
            protocol: "messages".into(),
            model_asked: "small".into(),
            model: "small".into(),
            provider: "p".into(),
            status: 200,
            outcome: "ok".into(),
            stream: false,
            tags: Vec::new(),
            usage,
            usage_source: UsageSource::Reported,
            parts: charged.parts,
            modifiers: modifiers(),
            price_version: "v1".into(),
            cost_nano_usd: charged.cost,
            latency_ms: 1,
            ttft_ms: None,
            hold_nano_usd: None,
            attempts: None,
            transport: RequestTransport::Http,
            translated: None,
            losses: Vec::new(),
        }
    }

    /// A decimal in 10^-30.
    fn exact(text: &str) -> i128 {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        format!("{whole}{fraction:0<30}").parse().unwrap()
    }

    /// The lines' sum, rounded up once.
    fn nanos(lines: &[ChargeLine]) -> i64 {
        let sum: i128 = lines.iter().map(|line| exact(&line.line.cost_usd)).sum();
        let nano = 10_i128.pow(21);
        i64::try_from(sum / nano + i128::from(sum % nano != 0)).unwrap()
    }

    #[test]
    fn losses_are_listed_up_to_their_limit_and_the_others_are_counted() {
        let few = RowTranslation::new("responses->chat", ["dropped tools[9]".to_owned()], 0);
        assert_eq!(few.translated.as_deref(), Some("responses->chat"));
        assert_eq!(few.losses, ["dropped tools[9]"]);
        let (loss, count) = ("x".repeat(255), LOSSES_BYTES_MAX / 256);
        let losses = |count| std::iter::repeat_n(loss.clone(), count);
        assert_eq!(RowTranslation::new("", losses(count), 0).losses.len(), count);
        let many = RowTranslation::new("", losses(count + 2).chain(["short".to_owned()]), 7);
        assert_eq!(many.losses.len(), count + 1);
        assert_eq!(many.losses.last().unwrap(), "more 10");
    }

    #[test]
    fn the_lines_of_a_row_say_count_price_and_factor_and_add_up_to_its_charge() {
        let usage = Usage {
            input_uncached: 7,
            output_text: 3,
            web_searches: 2,
            ..Usage::default()
        };
        let charged = charge("small", &find("small").unwrap(), &usage, &modifiers(), &[]);
        let row = row(usage, charged);
        let lines = price_lines(&row, find).unwrap();
        let told: Vec<_> = lines
            .iter()
            .map(|ChargeLine { line, .. }| {
                let factor = line.factor.as_deref().unwrap_or("1");
                (
                    &*line.counted,
                    line.count,
                    line.price_usd.as_str(),
                    &*line.per,
                    factor,
                    line.cost_usd.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("input_uncached", 7, "0.0003", "1M tokens", "2.2", "0.00000000462"),
                ("output_text", 3, "1", "1M tokens", "2.2", "0.0000066"),
                ("web_searches", 2, "0.01", "call", "1", "0.02"),
                ("request", 1, "0.5", "call", "1", "0.5"),
            ]
        );
        assert_eq!(nanos(&lines), row.cost_nano_usd.nanos());
    }

    #[test]
    fn each_model_of_a_row_has_lines_at_its_own_price() {
        let runs: Vec<Run> = [
            (RunKind::Answer, None, 150),
            (RunKind::Advisor, Some("large"), 1000),
            (RunKind::Answer, None, 20),
        ]
        .map(|(kind, model, tokens)| Run {
            kind,
            model: model.map(str::to_owned),
            usage: Usage {
                input_uncached: tokens,
                output_text: 1,
                ..Usage::default()
            },
        })
        .into();
        let usage = total_usage(&runs);
        let priced = |run: &Run| PricedRun {
            run: run.clone(),
            other: run.model.clone().map(|name| OtherModel {
                price: find(&name).unwrap(),
                name,
                priced_as: None,
            }),
        };
        let priced: Vec<PricedRun> = runs.iter().map(priced).collect();
        let charged = charge("small", &find("small").unwrap(), &usage, &modifiers(), &priced);
        assert!(charged.parts.len() > 2);
        let row = row(usage, charged);
        let lines = price_lines(&row, find).unwrap();
        assert_eq!(nanos(&lines), row.cost_nano_usd.nanos());
        let of_large = lines.iter().filter(|line| line.model.as_deref() == Some("large"));
        let prices: Vec<&str> = of_large.map(|line| line.line.price_usd.as_str()).collect();
        assert_eq!(prices, ["10", "50"]);
    }

    #[test]
    fn a_row_of_other_prices_has_no_lines() {
        let usage = Usage {
            input_uncached: 7,
            ..Usage::default()
        };
        let charged = charge("small", &find("small").unwrap(), &usage, &modifiers(), &[]);
        let row = row(usage, charged);
        let older = Row {
            price_version: "v0".into(),
            ..row.clone()
        };
        assert_eq!(price_lines(&older, find), None);
        assert_eq!(price_lines(&row, |_| None), None);
        let wrong = Row {
            cost_nano_usd: row.cost_nano_usd.saturating_add(NanoUsd::from_nanos(1)),
            ..row
        };
        assert_eq!(price_lines(&wrong, find), None);
    }
}

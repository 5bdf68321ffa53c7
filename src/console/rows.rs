//! Renders rows of the consumption log, each with an explanation of its charge.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::console::layout;
use crate::{
    api::{log::LogRow, values::Moment},
    domain::{
        ledger::consumption::{ChargeLine, RequestTransport, Row},
        wire::usage::Usage,
    },
};

/// The counts of a row's usage, with their names for display.
const COUNTS: [(&str, &str); 18] = [
    ("input_uncached", "Input"),
    ("input_audio", "Audio input"),
    ("input_image", "Image input"),
    ("cache_read", "Input read from a cache"),
    ("cache_read_audio", "Audio input read from a cache"),
    ("cache_read_image", "Image input read from a cache"),
    ("cache_write_short", "Input written to a cache"),
    ("cache_write_long", "Input written to a long-lived cache"),
    ("tool_input", "Input by the provider's tools"),
    ("output_text", "Output"),
    ("output_reasoning", "Output for reasoning"),
    ("output_audio", "Audio output"),
    ("output_image", "Image output"),
    ("web_searches", "Web searches"),
    ("web_fetches", "Web pages fetched"),
    ("file_searches", "File searches"),
    ("code_interpreter_calls", "Code interpreter calls"),
    ("image_generations", "Image generations"),
];

/// Returns the nonzero counts of a usage, with their names for display.
fn counts(usage: &Usage) -> Vec<(&'static str, u64)> {
    let parts: BTreeMap<&str, u64> = usage.named_parts().filter(|(_, count)| *count > 0).collect();
    let named = COUNTS
        .iter()
        .filter_map(|(field, name)| Some((*name, *parts.get(field)?)));
    named.collect()
}

/// Renders a table of rows, in the given order.
pub(super) fn list(rows: &[LogRow]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Rows" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Ended (UTC)" } th scope="col" { "Account" } th scope="col" { "Model" }
                    th scope="col" { "Status" } th scope="col" class="figure" { "In" } th scope="col" class="figure" { "Out" }
                    th scope="col" class="figure" { "Cost" } th scope="col" { "Outcome" }
                } }
                tbody { @for row in rows { (line(row)) } }
            }
        }
    }
}

fn line(told: &LogRow) -> Markup {
    let row = &told.row;
    let is_good = (200..300).contains(&row.status);
    html! {
        tr {
            th scope="row" { (layout::timestamp(Moment::of_millis(row.time_ms), "unknown")) }
            td { (layout::name(&row.account)) }
            td { (layout::name(&row.model)) }
            td { span class={ "pill " (if is_good { "o" } else { "u" }) } { (row.status) } }
            td class="figure" { (layout::thousands(row.usage.input_total())) }
            td class="figure" { (layout::thousands(row.usage.output_total())) }
            td class="figure" { (layout::amount(row.cost_nano_usd)) }
            td { details { summary { (row.outcome) } (explanation(told)) } }
        }
    }
}

/// Renders the lines of a charge. Each line has its exact amount; only the sum is rounded up.
fn price_lines_table(LogRow { row, price_lines, .. }: &LogRow) -> Markup {
    let name = |line: &ChargeLine| {
        let known = COUNTS.iter().find(|(field, _)| *field == line.line.counted);
        known.map_or("Fee of the request", |(_, name)| name)
    };
    html! {
        @match price_lines {
            Some(None) => p class="none" { "Charged at prices that are no longer in force." }
            Some(Some(lines)) if !lines.is_empty() => {
                table class="list" {
                    thead { tr {
                        th scope="col" { "What" } th scope="col" class="figure" { "Count" } th scope="col" class="figure" { "Price" }
                        th scope="col" class="figure" { "Amount" }
                    } }
                    tbody { @for line in lines { tr {
                        th scope="row" { (name(line)) @if let Some(model) = &line.model { " by " (layout::name(model)) } }
                        td class="figure" { (layout::thousands(line.line.count)) }
                        td class="figure" {
                            (layout::dollars(&line.line.price_usd)) " / " (line.line.per)
                            @if let Some(factor) = &line.line.factor { " \u{00d7} " (factor) }
                        }
                        td class="figure" { (layout::dollars(&line.line.cost_usd)) }
                    } } }
                    tfoot { tr {
                        th scope="row" colspan="3" { "The sum, rounded up to a nano-dollar" }
                        td class="figure" { (layout::amount(row.cost_nano_usd)) }
                    } }
                }
            }
            _ => {}
        }
    }
}

/// Renders the hold and the number of attempts of a request, if the row contains them.
fn hold_and_attempts(row: &Row) -> Markup {
    html! {
        @if let Some(attempts) = row.attempts {
            dt { "Attempts" }
            dd {
                (layout::thousands(attempts.into()))
                @if attempts == 1 { " at a provider" } @else { " at providers, the last at this one" }
            }
        }
        @if let Some(hold) = row.hold_nano_usd {
            dt { "Held" } dd { (layout::amount(hold)) " when it was admitted" }
        }
    }
}

/// Renders the translation of a request, with all members that were adapted or dropped, if the request was translated.
fn translation(row: &Row) -> Markup {
    html! {
        @if let Some(translated) = &row.translated {
            dt { "Translated" } dd { (translated) }
        }
        @if !row.losses.is_empty() {
            dt { "Adapted or dropped" }
            dd { @for (place, loss) in row.losses.iter().enumerate() { @if place > 0 { ", " } (layout::name(loss)) } }
        }
    }
}

/// Renders everything that explains the charge of a row.
fn explanation(told: &LogRow) -> Markup {
    let row = &told.row;
    // If the charge has lines, the lines already contain the counts.
    let is_billed = matches!(&told.price_lines, Some(Some(lines)) if !lines.is_empty());
    let modifiers = &row.modifiers;
    html! {
        (price_lines_table(told))
        dl class="facts" {
            @if !is_billed { @for (name, count) in counts(&row.usage) { dt { (name) } dd { (layout::thousands(count)) } } }
            dt { "Source of the usage" } dd { (row.usage_source.as_str()) }
            dt { "Cost" } dd { (layout::amount(row.cost_nano_usd)) " by prices " (row.price_version) }
            @for (text, name) in [
                (&modifiers.service_tier, "Service tier"), (&modifiers.speed, "Speed"), (&modifiers.geo, "Geography"),
            ] {
                @if let Some(text) = text { dt { (name) } dd { (text) } }
            }
            @for part in &row.parts {
                dt { "Of which " (layout::name(&part.model)) }
                dd { @for (name, count) in counts(&part.usage) { (name) " " (layout::thousands(count)) "; " } }
            }
            dt { "Requested" } dd { (layout::name(&row.model_asked)) ", protocol " (row.protocol) @if row.stream { ", as a stream" } @if row.transport == RequestTransport::WebSocket { ", on a WebSocket" } }
            (translation(row))
            dt { "Served by" } dd { (layout::name(&row.provider)) }
            (hold_and_attempts(row))
            dt { "Took" }
            dd { (layout::thousands(row.latency_ms)) " ms, first content after " (layout::count_or(row.ttft_ms, "no")) " ms" }
            @if !row.tags.is_empty() {
                dt { "Tags" }
                dd { @for (place, tag) in row.tags.iter().enumerate() { @if place > 0 { ", " } (layout::name(tag.as_str())) } }
            }
            dt { "Admitted" } dd { (layout::timestamp(Moment::of_millis(row.admitted_ms), "unknown")) ", which decides the day, week and month in which it counts for quotas" }
            dt { "Key" } dd { code { (row.key_id) } }
            dt { "Request" } dd { code { (row.request_id) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::money::{NanoUsd, price::PriceLine},
        store::ledger::contract::row,
    };

    #[test]
    fn a_row_shows_what_was_held_and_tried_if_it_is_known() {
        let row = |attempts, hold: Option<i64>| Row {
            attempts,
            hold_nano_usd: hold.map(NanoUsd::from_nanos),
            ..row("a", 1, "r", 0, NanoUsd::ZERO)
        };
        let shown = hold_and_attempts(&row(Some(2), Some(1_500_000))).into_string();
        assert!(shown.contains("2 at providers, the last at this one"), "{shown}");
        assert!(
            shown.contains("$0.0015") && shown.contains("when it was admitted"),
            "{shown}"
        );
        let shown = hold_and_attempts(&row(Some(1), Some(0))).into_string();
        assert!(shown.contains("1 at a provider") && shown.contains("$0"), "{shown}");
        assert_eq!(hold_and_attempts(&row(None, None)).into_string(), "");
    }

    #[test]
    fn a_row_shows_its_socket_and_its_losses_only_if_it_has_them() {
        let shown = |row: Row| list(&[LogRow::new(row, None)]).into_string();
        let row = row("a", 1, "r", 0, NanoUsd::ZERO);
        let lossy = Row {
            losses: vec!["adapted reasoning".into(), "dropped tools[9]".into()],
            ..row.clone()
        };
        let page = shown(lossy);
        for part in [
            ", on a WebSocket",
            "<dt>Translated</dt><dd>responses-&gt;chat</dd>",
            "<bdi>adapted reasoning</bdi>, <bdi>dropped tools[9]</bdi>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let page = shown(Row {
            transport: RequestTransport::Http,
            translated: None,
            losses: Vec::new(),
            ..row
        });
        for part in ["WebSocket", "Translated", "Adapted or dropped"] {
            assert!(!page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn a_row_shows_the_lines_of_its_charge_or_why_there_are_none() {
        let line = |model: Option<&str>,
                    (counted, count): (&'static str, u64),
                    price: [&str; 2],
                    per,
                    factor: Option<&str>| ChargeLine {
            model: model.map(str::to_owned),
            line: PriceLine {
                counted: counted.into(),
                count,
                price_usd: price[0].to_owned(),
                per: std::borrow::Cow::Borrowed(per),
                factor: factor.map(str::to_owned),
                cost_usd: price[1].to_owned(),
            },
        };
        let lines = vec![
            line(
                Some("<m>"),
                ("output_text", 1000),
                ["1", "0.0022"],
                "1M tokens",
                Some("2.2"),
            ),
            line(None, ("request", 1), ["0.5", "0.5"], "call", None),
        ];
        let told = |lines| LogRow::new(row("a", 1, "r", 0, NanoUsd::from_nanos(34)), Some(lines));
        let shown = price_lines_table(&told(Some(lines))).into_string();
        for part in [
            "Output by <bdi>&lt;m&gt;</bdi>",
            "1,000",
            "$1</span> / 1M tokens \u{00d7} 2.2",
            "$0.0022",
            "Fee of the request",
            "$0.5</span> / call<",
            "$0.000000034",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let other = price_lines_table(&told(None)).into_string();
        assert!(other.contains("prices that are no longer in force"));
        let free = price_lines_table(&told(Some(Vec::new()))).into_string();
        assert_eq!(free, "");
    }

    #[test]
    fn rows_are_shown_as_the_admin_api_tells_them() {
        let told = LogRow::new(row("a", 1, "r", 1_795_262_400_000, NanoUsd::from_nanos(34)), Some(None));
        let shown = list(&[told]).into_string();
        assert!(
            shown.contains("<bdi>a</bdi>") && shown.contains("no longer in force"),
            "{shown}"
        );
    }
}

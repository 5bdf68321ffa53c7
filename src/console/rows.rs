//! Rows of the consumption log, each with what its charge comes from.

use maud::{Markup, html};
use serde_json::Value;

use super::view;
use crate::domain::wire::usage::Usage;

/// What a row counts, as people call it.
const COUNTS: [(&str, &str); 18] = [
    ("input_uncached", "Input"),
    ("input_audio", "Input of sound"),
    ("input_image", "Input of images"),
    ("cache_read", "Input read from a cache"),
    ("cache_read_audio", "Input of sound read from a cache"),
    ("cache_read_image", "Input of images read from a cache"),
    ("cache_write_short", "Input written to a cache"),
    ("cache_write_long", "Input written to a cache for long"),
    ("tool_input", "Input by the provider's tools"),
    ("output_text", "Output"),
    ("output_reasoning", "Output for reasoning"),
    ("output_audio", "Output of sound"),
    ("output_image", "Output of images"),
    ("web_searches", "Web searches"),
    ("web_fetches", "Web pages fetched"),
    ("file_searches", "File searches"),
    ("code_interpreter_calls", "Code interpreter calls"),
    ("image_generations", "Image generations"),
];

/// The table, in the order of the rows.
pub(super) fn table(rows: &[Value]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Rows" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Ended (UTC)" } th scope="col" { "Account" } th scope="col" { "Model" }
                    th scope="col" { "Status" } th scope="col" class="figure" { "In" } th scope="col" class="figure" { "Out" }
                    th scope="col" class="figure" { "Cost" } th scope="col" { "What it comes from" }
                } }
                tbody { @for row in rows { (line(row)) } }
            }
        }
    }
}

/// The tokens that went in, of a row or of a sum of rows.
pub(super) fn input(of: &Value) -> u64 {
    sum(of, &Usage::INPUT)
}

/// The tokens that came out.
pub(super) fn output(of: &Value) -> u64 {
    sum(of, &Usage::OUTPUT)
}

fn sum(of: &Value, fields: &[&str]) -> u64 {
    let counts = fields.iter().map(|field| view::count(of, field));
    counts.fold(0, u64::saturating_add)
}

fn line(row: &Value) -> Markup {
    let status = view::plain(row, "status");
    let is_good = status.starts_with('2');
    html! {
        tr {
            th scope="row" { (view::time_ms(row, "time_ms")) }
            td { (view::name(view::text(row, "account"))) }
            td { (view::name(view::text(row, "model"))) }
            td { span class={ "pill " (if is_good { "o" } else { "u" }) } { (status) } }
            td class="figure" { (view::thousands(input(row))) }
            td class="figure" { (view::thousands(output(row))) }
            td class="figure" { (cost(row)) }
            td { details { summary { (view::text(row, "outcome")) } (explained(row)) } }
        }
    }
}

/// What a row, or a sum of rows, cost.
pub(super) fn cost(of: &Value) -> Markup {
    view::nanos(of, "cost_nano_usd")
}

/// The lines of a charge, each exact; the sum is rounded up once.
fn bill(row: &Value) -> Markup {
    let lines = view::list(row, "price_lines");
    let name = |line: &Value| {
        let counted = view::text(line, "counted");
        let known = COUNTS.iter().find(|(field, _)| *field == counted);
        known.map_or("Fee of the request", |(_, name)| name)
    };
    html! {
        @if row.get("price_lines").is_some_and(Value::is_null) {
            p class="none" { "Charged at prices that are not in force any more." }
        }
        @if !lines.is_empty() {
            table class="list" {
                thead { tr {
                    th scope="col" { "What" } th scope="col" class="figure" { "Count" } th scope="col" class="figure" { "Price" }
                    th scope="col" class="figure" { "Comes to" }
                } }
                tbody { @for line in lines { tr {
                    th scope="row" {
                        (name(line)) @if !view::text(line, "model").is_empty() { " by " (view::name(view::text(line, "model"))) }
                    }
                    td class="figure" { (view::number(line, "count", "0")) }
                    td class="figure" {
                        (view::usd(line, "price_usd", "")) " / " (view::text(line, "per"))
                        @if !view::text(line, "factor").is_empty() { " \u{00d7} " (view::text(line, "factor")) }
                    }
                    td class="figure" { (view::usd(line, "cost_usd", "")) }
                } } }
                tfoot { tr { th scope="row" colspan="3" { "The sum, rounded up to a nano-dollar" } td class="figure" { (cost(row)) } } }
            }
        }
    }
}

/// What was held for it and how often it was tried, as far as a row knows.
fn effort(row: &Value) -> Markup {
    let is_known = |field: &str| row.get(field).is_some_and(Value::is_number);
    html! {
        @if is_known("attempts") {
            dt { "Attempts" }
            dd {
                (view::number(row, "attempts", ""))
                @if view::count(row, "attempts") == 1 { " at a provider" } @else { " at providers, the last at this one" }
            }
        }
        @if is_known("hold_nano_usd") {
            dt { "Held" } dd { (view::nanos(row, "hold_nano_usd")) " when it was admitted" }
        }
    }
}

/// The parts of a charge.
fn explained(row: &Value) -> Markup {
    let text = |field: &str| view::plain(row, field);
    let parts = view::list(row, "parts");
    html! {
        (bill(row))
        dl class="facts" {
            // The lines of the charge have said it.
            @for (field, name) in COUNTS.iter().filter(|_| view::list(row, "price_lines").is_empty()) {
                @if view::count(row, field) > 0 { dt { (name) } dd { (view::number(row, field, "")) } }
            }
            dt { "Counted by" } dd { (text("usage_source")) }
            dt { "Cost" } dd { (cost(row)) " by prices " (text("price_version")) }
            @for (field, name) in [("service_tier", "Service tier"), ("speed", "Speed"), ("geo", "Geography")] {
                @if !text(field).is_empty() { dt { (name) } dd { (text(field)) } }
            }
            @for part in parts {
                dt { "Of which " (view::name(view::text(part, "model"))) }
                dd { @for (field, name) in COUNTS { @if view::count(part, field) > 0 { (name) " " (view::number(part, field, "")) "; " } } }
            }
            dt { "Asked for" } dd { (view::name(view::text(row, "model_asked"))) " by " (text("protocol")) @if view::is(row, "stream") { ", as a stream" } }
            dt { "Served by" } dd { (view::name(view::text(row, "provider"))) }
            (effort(row))
            dt { "Took" } dd { (view::number(row, "latency_ms", "")) " ms, first content after " (view::number(row, "ttft_ms", "no")) " ms" }
            @if !view::list(row, "tags").is_empty() {
                dt { "Tags" }
                dd { @for (place, tag) in view::list(row, "tags").iter().enumerate() { @if place > 0 { ", " } (view::name(tag.as_str().unwrap_or_default())) } }
            }
            dt { "Admitted" } dd { (view::time_ms(row, "admitted_ms")) ", which decides in whose quota's day, week and month it counts" }
            dt { "Key" } dd { code { (text("key_id")) } }
            dt { "Request" } dd { code { (text("request_id")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_shows_what_was_held_and_tried_if_it_is_known() {
        let row = json!({ "provider": "p", "attempts": 2, "hold_nano_usd": 1_500_000 });
        let shown = effort(&row).into_string();
        assert!(shown.contains("2 at providers, the last at this one"), "{shown}");
        assert!(
            shown.contains("$0.0015") && shown.contains("when it was admitted"),
            "{shown}"
        );
        let shown = effort(&json!({ "attempts": 1, "hold_nano_usd": 0 })).into_string();
        assert!(shown.contains("1 at a provider") && shown.contains("$0"), "{shown}");
        assert_eq!(effort(&json!({ "provider": "p" })).into_string(), "");
    }

    #[test]
    fn a_row_shows_the_lines_of_its_charge_or_why_there_are_none() {
        let row = json!({ "cost_nano_usd": 34, "price_lines": [
            { "counted": "output_text", "count": 1000, "price_usd": "1", "per": "1M tokens", "factor": "2.2",
              "cost_usd": "0.0022", "model": "<m>" },
            { "counted": "request", "count": 1, "price_usd": "0.5", "per": "call", "cost_usd": "0.5" },
        ] });
        let shown = bill(&row).into_string();
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
        let other = bill(&json!({ "cost_nano_usd": 34, "price_lines": null })).into_string();
        assert!(other.contains("prices that are not in force any more"));
        let free = bill(&json!({ "cost_nano_usd": 0, "price_lines": [] })).into_string();
        assert_eq!(free, "");
    }
}

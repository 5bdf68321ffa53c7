//! Sums of rows as a table: an answer of the admin API's `/v1/usage`.

use maud::{Markup, html};
use serde_json::Value;

use super::{rows, view};

/// The most lines of a table, as it is asked for.
pub(super) const LINES_MAX: &str = "100";

/// The table of an answer, with the latest day or what cost most first. `name` shows what a line is of.
pub(super) fn table(usage: &Value, name: impl Fn(&str) -> Markup) -> Markup {
    let by = view::text(usage, "by");
    let mut lines: Vec<&Value> = view::list(usage, "usage").iter().collect();
    if by == "day" {
        lines.reverse();
    } else {
        lines.sort_by_key(|line| std::cmp::Reverse(line.get("cost_nano_usd").and_then(Value::as_i64)));
    }
    let left_out = view::count(usage, "left_out");
    let heading = match by {
        "model" => "Model",
        "key" => "Key",
        "tag" => "Tag",
        _ => "Day (UTC)",
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Use by " (by) } {
            table class="list" {
                thead { tr {
                    th scope="col" { (heading) } th scope="col" class="figure" { "Requests" } th scope="col" class="figure" { "Failed" }
                    th scope="col" class="figure" { "In" } th scope="col" class="figure" { "Out" } th scope="col" class="figure" { "Cost" }
                } }
                tbody {
                    @for line in lines { (figures(&name(view::text(line, by)), line)) }
                    @if let Some(total) = usage.get("total") { (figures(&html! { "All" }, total)) }
                }
            }
        }
        @if by == "tag" { p class="none" { "A request counts with each of its tags, and once in All. Those without a tag are in All only." } }
        @if left_out > 0 { p class="none" { "And " (left_out) " more, which All has, too." } }
    }
}

fn figures(name: &Markup, of: &Value) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            td class="figure" { (view::thousands(view::count(of, "requests"))) }
            td class="figure" { (view::thousands(view::count(of, "errors"))) }
            td class="figure" { (view::thousands(rows::input(of))) }
            td class="figure" { (view::thousands(rows::output(of))) }
            td class="figure" { (rows::cost(of)) }
        }
    }
}

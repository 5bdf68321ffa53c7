//! Usage as a table and as charts.

use maud::{Markup, html};

use super::view;
use crate::{
    api::usage::{UsagePage, UsageSums},
    domain::ledger::usage_report::SplitBy,
};

/// The maximum number of lines of a table.
pub(super) const LINES_MAX: usize = 100;

/// The table of an answer, the latest day or the highest cost first. `name` renders a line's name.
pub(super) fn usage_table(usage: &UsagePage, name: impl Fn(&str) -> Markup) -> Markup {
    let by = usage.by;
    let mut lines: Vec<_> = usage.usage.iter().collect();
    if by == SplitBy::Day {
        lines.reverse();
    } else {
        lines.sort_by_key(|line| std::cmp::Reverse(line.sums.cost_nano_usd));
    }
    let heading = match by {
        SplitBy::Day => "Day (UTC)",
        SplitBy::Model => "Model",
        SplitBy::Key => "Key",
        SplitBy::Tag => "Tag",
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Use by " (by) } {
            table class="list" {
                thead { tr {
                    th scope="col" { (heading) } th scope="col" class="figure" { "Requests" } th scope="col" class="figure" { "Failed" }
                    th scope="col" class="figure" { "In" } th scope="col" class="figure" { "Out" } th scope="col" class="figure" { "Cost" }
                } }
                tbody {
                    @for line in lines { (sums_row(&name(line.of.name()), &line.sums)) }
                    (sums_row(&html! { "All" }, &usage.total))
                }
            }
        }
        @if by == SplitBy::Tag {
            p class="none" { "A request counts for each of its tags, and once in All. Requests without a tag are in All only." }
        }
        @if usage.left_out > 0 { p class="none" { "And " (usage.left_out) " more, which are included in All." } }
    }
}

fn sums_row(name: &Markup, of: &UsageSums) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            td class="figure" { (view::thousands(of.requests)) }
            td class="figure" { (view::thousands(of.errors)) }
            td class="figure" { (view::thousands(of.usage.input_total())) }
            td class="figure" { (view::thousands(of.usage.output_total())) }
            td class="figure" { (view::amount(of.cost_nano_usd)) }
        }
    }
}

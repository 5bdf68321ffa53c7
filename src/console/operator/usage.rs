//! What accounts, keys and models have used, from the daily sums.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::error::AdminError,
    console::{
        desk::{Desk, below},
        fields::query,
        frame::Page,
        usage_chart, usage_table, view,
    },
};

/// What it can be split by, the first unless asked otherwise.
const SPLITS: [(&str, &str); 4] = [("day", "Day"), ("model", "Model"), ("key", "Key"), ("tag", "Tag")];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let wanted = |name| desk.query.text(name);
    let filter = ["account", "key", "model", "tag", "from", "until", "by"].map(|name| (name, wanted(name)));
    let asked = query(
        &[
            &filter[..],
            &[("after", wanted("after")), ("most", usage_table::LINES_MAX)],
        ]
        .concat(),
    );
    let found = match desk.read(&format!("/v1/usage{asked}")).await {
        Ok(usage) => shown(&usage, &filter),
        // What is wrong with a filter belongs beside it.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(Page {
        title: "Usage".to_owned(),
        content: html! { (filters(&filter)) (found) },
    })
}

fn shown(usage: &Value, filter: &[(&str, &str)]) -> Markup {
    let next = view::text(usage, "next");
    let name = |name: &str| match view::text(usage, "by") {
        "key" => html! { a href=(below("/keys", name)) { (name) } },
        _ => view::name(name),
    };
    html! {
        @if !next.is_empty() || filter.iter().any(|(name, value)| *name == "after" && !value.is_empty()) {
            p class="lead" { "Of some of the accounts only: there are too many for one page." }
        }
        (usage_chart::spent(usage, false))
        @if view::count(usage.get("total").unwrap_or(&Value::Null), "requests") == 0 {
            p class="card" { "Nothing was used from " (view::text(usage, "from")) " to " (view::text(usage, "until")) "." }
        } @else { (usage_table::table(usage, name)) }
        @if !next.is_empty() {
            p class="pages" { a href={ "/usage" (query(&[filter, &[("after", next)]].concat())) } { "Further accounts" } }
        }
    }
}

fn filters(filter: &[(&str, &str)]) -> Markup {
    let labels = [
        ("Account", "text"),
        ("Key id", "text"),
        ("Model", "text"),
        ("Tag", "text"),
        ("From (UTC)", "date"),
        ("Until, not itself", "date"),
    ];
    let by = filter.last().map_or("", |(_, by)| *by);
    html! {
        form method="get" action="/usage" class="filter" role="search" {
            @for ((name, value), (label, kind)) in filter.iter().zip(labels) {
                label { span { (label) } input type=(kind) name=(name) value=(value); }
            }
            label {
                span { "By" }
                select name="by" { @for (value, label) in SPLITS { option value=(value) selected[by == value] { (label) } } }
            }
            button { "Show" }
        }
    }
}

//! What accounts, keys and models have used, from the daily sums.

use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        usage::{ShowUsage, UsagePage},
    },
    console::{
        desk::{Desk, below},
        fields::{query, question},
        frame::Page,
        usage_chart, usage_table, view,
    },
    domain::ledger::usage_report::SplitBy,
};

/// What it can be split by, the first unless asked otherwise.
const SPLITS: [(&str, &str); 4] = [("day", "Day"), ("model", "Model"), ("key", "Key"), ("tag", "Tag")];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let wanted = |name| desk.query.text(name);
    let filter = ["account", "key", "model", "tag", "from", "until", "by"].map(|name| (name, wanted(name)));
    let found = match look(desk, &filter).await {
        Ok(found) => found,
        // What is wrong with a filter belongs beside it.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(Page {
        title: "Usage".to_owned(),
        content: html! { (filters(&filter)) (found) },
    })
}

async fn look(desk: &Desk<'_>, filter: &[(&str, &str)]) -> Result<Markup, AdminError> {
    let after = desk.query.text("after");
    let asked = ShowUsage {
        most: Some(usage_table::MOST),
        ..question(&[filter, &[("after", after)]].concat())?
    };
    Ok(shown(&*desk.look(asked).await?, filter, !after.is_empty()))
}

fn shown(usage: &UsagePage, filter: &[(&str, &str)], is_further: bool) -> Markup {
    let name = |name: &str| match usage.by {
        SplitBy::Key => html! { a href=(below("/keys", name)) { (name) } },
        _ => view::name(name),
    };
    html! {
        @if usage.next.is_some() || is_further {
            p class="lead" { "Of some of the accounts only: there are too many for one page." }
        }
        (usage_chart::of_usage(usage, false))
        @if usage.total.requests == 0 {
            p class="card" { "Nothing was used from " (usage.costs.from) " to " (usage.costs.until) "." }
        } @else { (usage_table::of_usage(usage, name)) }
        @if let Some(next) = &usage.next {
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

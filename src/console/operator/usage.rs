//! The page of usage by account, key, model and tag, from the daily sums.

use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        usage::{ShowUsage, UsagePage},
    },
    console::{
        desk::{PageContext, below},
        fields::{read_question, to_query},
        frame::HtmlPage,
        usage_chart, usage_table, view,
    },
    domain::ledger::usage_report::SplitBy,
};

/// The ways to split it; the first is the default.
const SPLITS: [(&str, &str); 4] = [("day", "Day"), ("model", "Model"), ("key", "Key"), ("tag", "Tag")];

pub(super) async fn usage_page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let wanted = |name| context.query.text(name);
    let filter = ["account", "key", "model", "tag", "from", "until", "by"].map(|name| (name, wanted(name)));
    let found = match find_usage(context, &filter).await {
        Ok(found) => found,
        // An error in a filter is shown below the filters.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(HtmlPage {
        title: "Usage".to_owned(),
        content: html! { (filters(&filter)) (found) },
    })
}

async fn find_usage(context: &PageContext<'_>, filter: &[(&str, &str)]) -> Result<Markup, AdminError> {
    let after = context.query.text("after");
    let asked = ShowUsage {
        most: Some(usage_table::LINES_MAX),
        ..read_question(&[filter, &[("after", after)]].concat())?
    };
    Ok(usage_content(&*context.fetch(asked).await?, filter, !after.is_empty()))
}

fn usage_content(usage: &UsagePage, filter: &[(&str, &str)], is_further: bool) -> Markup {
    let name = |name: &str| match usage.by {
        SplitBy::Key => html! { a href=(below("/keys", name)) { (name) } },
        _ => view::name(name),
    };
    html! {
        @if usage.next.is_some() || is_further {
            p class="lead" { "Only some of the accounts: there are too many for one page." }
        }
        (usage_chart::usage_chart(usage, false))
        @if usage.total.requests == 0 {
            p class="card" { "Nothing was used from " (usage.costs.from) " to " (usage.costs.until) "." }
        } @else { (usage_table::usage_table(usage, name)) }
        @if let Some(next) = &usage.next {
            p class="pages" { a href={ "/usage" (to_query(&[filter, &[("after", next)]].concat())) } { "Further accounts" } }
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
        ("Until, exclusive", "date"),
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

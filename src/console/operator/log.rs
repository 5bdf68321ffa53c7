//! The consumption log, with the filters of `weir log query`, page by page.

use maud::{Markup, html};
use serde_json::json;

use crate::{
    console::{answer::Answer, desk::Desk, fields::query, frame::Page, rows, view},
    side::admin::local::Refused,
};

/// Rows on one page.
const PAGE: usize = 25;
/// How far the page looks back unless asked otherwise.
const HOURS: &str = "24";
/// The most rows of an export, some 10 MB.
const EXPORTED_MAX: u64 = 10_000;
const EXPORTED_AT_ONCE: u64 = 1000;
/// The most questions for one export: where few of many rows are wanted, each finds few.
const EXPORT_CALLS_MAX: usize = 100;

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, Refused> {
    let wanted = |name: &str| desk.query.text(name);
    let filter = filter(desk);
    let export = query(&[&filter[..], &[("cursor", wanted("cursor"))]].concat());
    let further = |cursor: &str| query(&[&filter[..], &[("cursor", cursor)]].concat());
    let limit = PAGE.to_string();
    let shown = [("limit", &*limit), ("lines", "true"), ("cursor", wanted("cursor"))];
    let asked = query(&[&filter[..], &shown].concat());
    let answer = desk.read(&format!("/v1/log{asked}")).await;
    let found = match &answer {
        Ok(answer) => {
            let next = view::text(answer, "next");
            html! {
                @if view::list(answer, "rows").is_empty() {
                    p class="card" {
                        @if next.is_empty() { "No rows" @if !wanted("cursor").is_empty() { " more" } " in this time." }
                        @else { "None among those looked through so far." }
                        @if !view::text(answer, "unknown_model").is_empty() { " " (view::text(answer, "unknown_model")) }
                    }
                } @else {
                    (rows::table(view::list(answer, "rows")))
                    p class="pages" {
                        a href={ "/log/export" (export) } { "Export as JSON lines" }
                        " " span class="none" { "From the first row of this page on, at most " (view::thousands(EXPORTED_MAX)) " rows." }
                    }
                }
                @if !next.is_empty() { p class="pages" { a href={ "/log" (further(next)) } { "Further rows" } } }
            }
        }
        // What is wrong with a filter belongs beside it.
        Err(refused) => html! { p class="card refused" role="alert" { (refused.message) } },
    };
    Ok(Page {
        title: "Log".to_owned(),
        content: html! { (filters(&filter)) (found) },
    })
}

/// What is asked for, as the admin API's log takes it.
fn filter<'a>(desk: &Desk<'a>) -> [(&'static str, &'a str); 8] {
    let wanted = |name: &str| desk.query.text(name);
    let since = wanted("since");
    let hours = match (wanted("hours"), since) {
        ("", "") => HOURS,
        (hours, _) => hours,
    };
    [
        ("account", wanted("account")),
        ("key", wanted("key")),
        ("model", wanted("model")),
        ("status", wanted("status")),
        ("tag", wanted("tag")),
        ("hours", hours),
        ("since", since),
        ("until", wanted("until")),
    ]
}

/// The rows from a place on, one in a line. Where there are more, the last line says from where on: `{"next":"..."}`.
pub(super) async fn export(desk: &Desk<'_>) -> Result<Answer, Refused> {
    let (filter, mut cursor) = (filter(desk), desk.query.text("cursor").to_owned());
    let (mut lines, mut count) = (String::new(), 0);
    for _ in 0..EXPORT_CALLS_MAX {
        let limit = EXPORTED_MAX.saturating_sub(count).min(EXPORTED_AT_ONCE).to_string();
        let asked = query(&[&filter[..], &[("limit", &limit), ("cursor", &cursor)]].concat());
        let answer = desk.read(&format!("/v1/log{asked}")).await?;
        for row in view::list(&answer, "rows") {
            count += 1;
            lines.push_str(&row.to_string());
            lines.push('\n');
        }
        view::text(&answer, "next").clone_into(&mut cursor);
        if cursor.is_empty() || count >= EXPORTED_MAX {
            break;
        }
    }
    if !cursor.is_empty() {
        lines.push_str(&json!({ "next": cursor }).to_string());
        lines.push('\n');
    }
    Ok(Answer::download("attachment; filename=\"weir-log.jsonl\"", lines))
}

fn filters(filter: &[(&str, &str)]) -> Markup {
    let names = [
        "Account",
        "Key id",
        "Model",
        "Status",
        "Tag",
        "Last hours",
        "or since (UTC)",
        "Until (UTC)",
    ];
    html! {
        form method="get" action="/log" class="filter" role="search" {
            @for ((name, value), label) in filter.iter().zip(names) {
                label { span { (label) } input type="text" name=(name) value=(value); }
            }
            button { "Show" }
        }
    }
}

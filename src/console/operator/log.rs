//! The consumption log, with the filters of `weir log query`, page by page.

use maud::{Markup, html};
use serde_json::json;

use crate::{
    console::{answer::Answer, desk::Desk, fields::query, frame::Page, rows, view},
    side::admin::local::{LogFile, Refused},
};

/// Rows on one page.
const PAGE: usize = 25;
/// How far the page looks back unless asked otherwise.
const HOURS: &str = "24";
/// The most rows of an export, some 10 MB.
const EXPORTED_MAX: usize = 10_000;
/// The forms of an export, as people call them.
const FORMS: [(&str, &str); 3] = [("jsonl", "JSON lines"), ("csv", "CSV"), ("parquet", "Parquet")];

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
                        @for (form, name) in FORMS {
                            a href={ "/log/export/" (form) (export) } { "Export as " (name) } " "
                        }
                    }
                    p class="none" {
                        "From the first row of this page on, at most " (view::thousands(EXPORTED_MAX.try_into().unwrap_or(u64::MAX)))
                        " rows. A file that has not all of them is called weir-log-part; weir log export writes all."
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

/// The rows from a place on, as a file. The name of one that has not all says so; where its last line may, it says from where on
/// there are more: `{"next":"..."}`.
pub(super) async fn export(desk: &Desk<'_>, form: &str) -> Result<Answer, Refused> {
    let asked = query(&[&filter(desk)[..], &[("cursor", desk.query.text("cursor"))]].concat());
    let LogFile { kind, mut bytes, next } = desk.log_file(form, &asked, EXPORTED_MAX).await?;
    let name = if next.is_some() { "weir-log-part" } else { "weir-log" };
    if let Some(next) = next.filter(|_| form == "jsonl") {
        bytes.extend(format!("{}\n", json!({ "next": next })).into_bytes());
    }
    Ok(Answer::download(&format!("{name}.{form}"), kind, bytes))
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

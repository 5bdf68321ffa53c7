//! The consumption log, with the filters of `weir log query`, page by page.

use maud::{Markup, html};

use crate::{
    console::{desk::Desk, fields::query, frame::Page, rows, view},
    side::admin::local::Refused,
};

/// Rows on one page.
const PAGE: usize = 25;
/// How far the page looks back unless asked otherwise.
const HOURS: &str = "24";

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, Refused> {
    let wanted = |name: &str| desk.query.text(name);
    let (since, until) = (wanted("since"), wanted("until"));
    let hours = match (wanted("hours"), since) {
        ("", "") => HOURS,
        (hours, _) => hours,
    };
    let filter = [
        ("account", wanted("account")),
        ("key", wanted("key")),
        ("model", wanted("model")),
        ("hours", hours),
        ("since", since),
        ("until", until),
    ];
    let further = |cursor: &str| query(&[&filter[..], &[("cursor", cursor)]].concat());
    let limit = PAGE.to_string();
    let asked = query(&[&filter[..], &[("limit", &limit), ("cursor", wanted("cursor"))]].concat());
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
                } @else { (rows::table(view::list(answer, "rows"))) }
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

fn filters(filter: &[(&str, &str)]) -> Markup {
    let names = [
        "Account",
        "Key id",
        "Model",
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

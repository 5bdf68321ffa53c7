//! The consumption log, with the filters of `weir log query`, page by page.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    admin::local::LogFile,
    api::error::AdminError,
    console::{answer::Answer, desk::Desk, fields::query, frame::Page, rows, view},
};

/// Rows on one page.
const PAGE: usize = 25;
/// How long a page may look for rows; what it has not looked through is one link further.
const LOOK_MS: &str = "150";
/// The order that is not the usual one.
const OLDEST: &str = "oldest";
/// How far the page looks back unless asked otherwise.
const HOURS: &str = "24";
/// The most rows of an export, some 10 MB.
const EXPORTED_MAX: usize = 10_000;
/// The forms of an export, as people call them.
const FORMS: [(&str, &str); 3] = [("jsonl", "JSON lines"), ("csv", "CSV"), ("parquet", "Parquet")];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let wanted = |name: &str| desk.query.text(name);
    let (filter, order, cursor) = (filter(desk), Order::of(wanted("order")), wanted("cursor"));
    let limit = PAGE.to_string();
    let shown = [
        ("limit", &*limit),
        ("lines", "true"),
        ("look_ms", LOOK_MS),
        ("cursor", cursor),
    ];
    let asked = query(&[&filter[..], &shown].concat());
    let found = match desk.read(&format!("{}{asked}", order.path())).await {
        Ok(answer) => found(&answer, &filter, order, cursor),
        // What is wrong with a filter belongs beside it.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(Page {
        title: "Log".to_owned(),
        content: html! { (filters(&filter, order)) (found) },
    })
}

/// What comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Newest,
    /// By day, account and time, as `weir log query` has them, wherever they are.
    Oldest,
}

impl Order {
    fn of(text: &str) -> Self {
        if text == OLDEST { Self::Oldest } else { Self::Newest }
    }

    /// As a query has it; the usual one need not be named.
    fn name(self) -> &'static str {
        match self {
            Self::Newest => "",
            Self::Oldest => OLDEST,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Newest => "/v1/log/newest",
            Self::Oldest => "/v1/log",
        }
    }
}

/// The rows of an answer, and the ways on from them.
fn found(answer: &Value, filter: &[(&str, &str)], order: Order, cursor: &str) -> Markup {
    let rows = view::list(answer, "rows");
    let next = view::text(answer, "next");
    let further = query(&[filter, &[("order", order.name()), ("cursor", next)]].concat());
    let further_on = match order {
        _ if rows.is_empty() => "Look further",
        Order::Newest => "Older rows",
        Order::Oldest => "Further rows",
    };
    html! {
        @if rows.is_empty() {
            p class="card" {
                @if !next.is_empty() { "None among those looked through so far" (looked_through(answer, order)) "." }
                @else { "No rows" @if !cursor.is_empty() { " more" } " in this time." }
                @if !view::text(answer, "unknown_model").is_empty() { " " (view::text(answer, "unknown_model")) }
            }
        } @else {
            (rows::table(rows))
            (exports(filter, order, cursor))
        }
        @if !next.is_empty() { p class="pages" { a href={ "/log" (further) } { (further_on) } } }
    }
}

fn looked_through(answer: &Value, order: Order) -> Markup {
    let looked = answer.get("looked_through").unwrap_or(&Value::Null);
    let (account, rows) = (
        view::text(looked, "before_account"),
        view::count(looked, "rows_of_account"),
    );
    html! {
        @if order == Order::Newest { ": " (view::number(answer, "looked_at", "0")) " rows" }
        @else {
            ": all before " (view::text(looked, "before_day"))
            @if !account.is_empty() { ", of that day the accounts before " (view::name(account)) }
            @if rows > 0 { ", and " (view::thousands(rows)) " rows of the next" }
        }
    }
}

fn exports(filter: &[(&str, &str)], order: Order, cursor: &str) -> Markup {
    // An export begins with the oldest row.
    let from = if order == Order::Oldest { cursor } else { "" };
    let export = query(&[filter, &[("cursor", from)]].concat());
    html! {
        p class="pages" {
            @for (form, name) in FORMS {
                a href={ "/log/export/" (form) (export) } { "Export as " (name) } " "
            }
        }
        p class="none" {
            @if order == Order::Oldest { "From the first row of this page on" } @else { "All of this time, from the oldest row on" }
            ", at most " (view::thousands(EXPORTED_MAX.try_into().unwrap_or(u64::MAX)))
            " rows. A file that has not all of them is called weir-log-part; weir log export writes all."
        }
    }
}

/// What is asked for, as the admin API's log takes it.
fn filter<'a>(desk: &Desk<'a>) -> [(&'static str, &'a str); 8] {
    let wanted = |name: &str| desk.query.text(name);
    let from = wanted("from");
    let hours = match (wanted("hours"), from) {
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
        ("from", from),
        ("until", wanted("until")),
    ]
}

/// The rows from a place on, as a file. The name of one that has not all says so; where its last line may, it says from where on
/// there are more: `{"next":"..."}`.
pub(super) async fn export(desk: &Desk<'_>, form: &str) -> Result<Answer, AdminError> {
    let asked = query(&[&filter(desk)[..], &[("cursor", desk.query.text("cursor"))]].concat());
    let LogFile { kind, mut bytes, next } = desk.log_file(form, &asked, EXPORTED_MAX).await?;
    let name = if next.is_some() { "weir-log-part" } else { "weir-log" };
    if let Some(next) = next.filter(|_| form == "jsonl") {
        bytes.extend(format!("{}\n", json!({ "next": next })).into_bytes());
    }
    Ok(Answer::download(&format!("{name}.{form}"), kind, bytes))
}

fn filters(filter: &[(&str, &str)], order: Order) -> Markup {
    let names = [
        "Account",
        "Key id",
        "Model",
        "Status",
        "Tag",
        "Last hours",
        "or from (UTC)",
        "Until (UTC)",
    ];
    html! {
        form method="get" action="/log" class="filter" role="search" {
            @for ((name, value), label) in filter.iter().zip(names) {
                label { span { (label) } input type="text" name=(name) value=(value); }
            }
            label {
                span { "Order" }
                select name="order" {
                    option value="" selected[order == Order::Newest] { "Newest first" }
                    option value=(OLDEST) selected[order == Order::Oldest] { "Oldest first" }
                }
            }
            button { "Show" }
        }
    }
}

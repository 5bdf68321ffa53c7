//! The consumption log, with the filters of `weir log query`, page by page.

use maud::{Markup, html};
use serde_json::json;

use crate::{
    admin::log::export::LogFile,
    api::{
        error::AdminError,
        log::{ExportLog, ListNewestRows, LogForm, LogRow, LookedThrough, NotAForm, QueryLog},
    },
    console::{
        answer::Answer,
        desk::Desk,
        fields::{query, question},
        frame::Page,
        rows, view,
    },
};

/// Rows on one page.
const PAGE: usize = 25;
/// How long a page may look for rows; what it has not looked through is one link further.
const LOOK_MS: u64 = 150;
/// The order that is not the usual one.
const OLDEST: &str = "oldest";
/// How far the page looks back unless asked otherwise.
const HOURS: &str = "24";
/// The most rows of an export, some 10 MB.
const EXPORTED_MAX: usize = 10_000;
/// The forms of an export, as people call them.
const FORMS: [(LogForm, &str); 3] = [
    (LogForm::JsonLines, "JSON lines"),
    (LogForm::Csv, "CSV"),
    (LogForm::Parquet, "Parquet"),
];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let wanted = |name: &str| desk.query.text(name);
    let (filter, order, cursor) = (filter(desk), Order::of(wanted("order")), wanted("cursor"));
    let found = match look(desk, &filter, order, cursor).await {
        Ok(found) => found,
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
}

/// Looks for the rows of a page.
async fn look(desk: &Desk<'_>, filter: &Filter<'_>, order: Order, cursor: &str) -> Result<Markup, AdminError> {
    let asked = QueryLog {
        limit: Some(PAGE),
        lines: Some(true),
        look_ms: Some(LOOK_MS),
        ..question(&[&filter[..], &[("cursor", cursor)]].concat())?
    };
    Ok(match order {
        Order::Newest => {
            let page = desk.look(ListNewestRows(asked)).await?;
            let looked_through = html! { ": " (view::thousands(page.looked_at as u64)) " rows" };
            let ways = (page.next.as_deref(), page.unknown_model.as_deref());
            found(&page.rows, ways, &looked_through, (filter, order, cursor))
        }
        Order::Oldest => {
            let page = desk.look(asked).await?;
            let looked_through = page.looked_through.as_ref().map(looked_through).unwrap_or_default();
            let ways = (page.next.as_deref(), page.unknown_model.as_deref());
            found(&page.rows, ways, &looked_through, (filter, order, cursor))
        }
    })
}

/// The rows of an answer, and the ways on from them.
fn found(
    rows: &[LogRow],
    (next, unknown_model): (Option<&str>, Option<&str>),
    looked_through: &Markup,
    (filter, order, cursor): (&Filter<'_>, Order, &str),
) -> Markup {
    let further_on = match order {
        _ if rows.is_empty() => "Look further",
        Order::Newest => "Older rows",
        Order::Oldest => "Further rows",
    };
    html! {
        @if rows.is_empty() {
            p class="card" {
                @if next.is_some() { "None among those looked through so far" (looked_through) "." }
                @else { "No rows" @if !cursor.is_empty() { " more" } " in this time." }
                @if let Some(unknown_model) = unknown_model { " " (unknown_model) }
            }
        } @else {
            (rows::list(rows))
            (exports(filter, order, cursor))
        }
        @if let Some(next) = next {
            @let further = query(&[&filter[..], &[("order", order.name()), ("cursor", next)]].concat());
            p class="pages" { a href={ "/log" (further) } { (further_on) } }
        }
    }
}

fn looked_through(looked: &LookedThrough) -> Markup {
    let (account, rows) = (&looked.before_account, looked.rows_of_account);
    html! {
        ": all before " (looked.before_day)
        @if !account.is_empty() { ", of that day the accounts before " (view::name(account)) }
        @if rows > 0 { ", and " (view::thousands(rows as u64)) " rows of the next" }
    }
}

fn exports(filter: &Filter<'_>, order: Order, cursor: &str) -> Markup {
    // An export begins with the oldest row.
    let from = if order == Order::Oldest { cursor } else { "" };
    let export = query(&[&filter[..], &[("cursor", from)]].concat());
    html! {
        p class="pages" {
            @for (form, name) in FORMS {
                a href={ "/log/export/" (form.as_str()) (export) } { "Export as " (name) } " "
            }
        }
        p class="none" {
            @if order == Order::Oldest { "From the first row of this page on" } @else { "All of this time, from the oldest row on" }
            ", at most " (view::thousands(EXPORTED_MAX.try_into().unwrap_or(u64::MAX)))
            " rows. A file that has not all of them is called weir-log-part; weir log export writes all."
        }
    }
}

/// What is asked for, by the names of its fields.
type Filter<'a> = [(&'static str, &'a str); 8];

fn filter<'a>(desk: &Desk<'a>) -> Filter<'a> {
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
    let form: LogForm = form
        .parse()
        .map_err(|error: NotAForm| AdminError::not_found(error.to_string()))?;
    let asked = question(&[&filter(desk)[..], &[("cursor", desk.query.text("cursor"))]].concat())?;
    let LogFile { mut bytes, next } = desk.log_file(ExportLog::new(form, asked), EXPORTED_MAX).await?;
    let name = if next.is_some() { "weir-log-part" } else { "weir-log" };
    if let Some(next) = next.filter(|_| form == LogForm::JsonLines) {
        bytes.extend(format!("{}\n", json!({ "next": next })).into_bytes());
    }
    Ok(Answer::download(&format!("{name}.{form}"), form.media(), bytes))
}

fn filters(filter: &Filter<'_>, order: Order) -> Markup {
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

//! The console's page of the consumption log, with the filters of `weir log query`.

use maud::{Markup, html};
use serde_json::json;

use crate::{
    admin::log::export::LogExportFile,
    api::{
        AdminError,
        log::{ExportLog, ListNewestRows, LogForm, LogRow, QueryLog, SearchPosition, UnknownLogForm},
    },
    console::{
        PageContext,
        layout::{self, HtmlPage, PageResponse},
        request::{read_question, to_query},
        rows,
    },
};

/// The number of rows on one page.
const PAGE: usize = 25;
/// The maximum time for which one page searches for rows, in milliseconds. If the search is not complete, a link on the page
/// continues it.
const LOOK_MS: u64 = 150;
/// The value of the query parameter `order` for [`RowOrder::Oldest`], which is not the default.
const OLDEST: &str = "oldest";
/// The number of hours that the page looks back by default.
const HOURS: &str = "24";
/// The maximum number of rows of an export. An export with this number of rows has about 10 MB.
const EXPORTED_MAX: usize = 10_000;
/// The formats of an export, and their names for display.
const FORMS: [(LogForm, &str); 3] = [
    (LogForm::JsonLines, "JSON lines"),
    (LogForm::Csv, "CSV"),
    (LogForm::Parquet, "Parquet"),
];

pub(super) async fn page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let wanted = |name: &str| context.query.text(name);
    let (filter, order, cursor) = (filter(context), RowOrder::from_query(wanted("order")), wanted("cursor"));
    let found = match find_rows(context, &filter, order, cursor).await {
        Ok(found) => found,
        // If a filter is invalid, the error is displayed below the filters.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(HtmlPage {
        title: "Log".to_owned(),
        content: html! { (filters(&filter, order)) (found) },
    })
}

/// The order in which rows are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    Newest,
    /// The rows are ordered by day, then by account, then by the time at which the request ended. `weir log query` uses the same
    /// order.
    Oldest,
}

impl RowOrder {
    fn from_query(text: &str) -> Self {
        if text == OLDEST { Self::Oldest } else { Self::Newest }
    }

    /// Returns the value of the query parameter `order`. Empty for the default order.
    fn name(self) -> &'static str {
        match self {
            Self::Newest => "",
            Self::Oldest => OLDEST,
        }
    }
}

/// Searches for the rows of a page, and renders them.
async fn find_rows(
    context: &PageContext<'_>,
    filter: &LogPageFilter<'_>,
    order: RowOrder,
    cursor: &str,
) -> Result<Markup, AdminError> {
    let asked = QueryLog {
        limit: Some(PAGE),
        lines: Some(true),
        look_ms: Some(LOOK_MS),
        ..read_question(&[&filter[..], &[("cursor", cursor)]].concat())?
    };
    Ok(match order {
        RowOrder::Newest => {
            let page = context.fetch(ListNewestRows(asked)).await?;
            let looked_through = html! { ": " (layout::thousands(page.looked_at as u64)) " rows" };
            let ways = (page.next.as_deref(), page.unknown_model.as_deref());
            found_rows(&page.rows, ways, &looked_through, (filter, order, cursor))
        }
        RowOrder::Oldest => {
            let page = context.fetch(asked).await?;
            let looked_through = page.looked_through.as_ref().map(looked_through).unwrap_or_default();
            let ways = (page.next.as_deref(), page.unknown_model.as_deref());
            found_rows(&page.rows, ways, &looked_through, (filter, order, cursor))
        }
    })
}

/// Renders the rows of an answer, and the links to further rows.
fn found_rows(
    rows: &[LogRow],
    (next, unknown_model): (Option<&str>, Option<&str>),
    looked_through: &Markup,
    (filter, order, cursor): (&LogPageFilter<'_>, RowOrder, &str),
) -> Markup {
    let further_on = match order {
        _ if rows.is_empty() => "Search further",
        RowOrder::Newest => "Older rows",
        RowOrder::Oldest => "Further rows",
    };
    html! {
        @if rows.is_empty() {
            p class="card" {
                @if next.is_some() { "None among the rows searched so far" (looked_through) "." }
                @else { "No rows" @if !cursor.is_empty() { " more" } " in this time." }
                @if let Some(unknown_model) = unknown_model { " " (unknown_model) }
            }
        } @else {
            (rows::list(rows))
            (exports(filter, order, cursor))
        }
        @if let Some(next) = next {
            @let further = to_query(&[&filter[..], &[("order", order.name()), ("cursor", next)]].concat());
            p class="pages" { a href={ "/log" (further) } { (further_on) } }
        }
    }
}

fn looked_through(looked: &SearchPosition) -> Markup {
    let (account, rows) = (&looked.before_account, looked.rows_of_account);
    html! {
        ": all days before " (looked.before_day)
        @if !account.is_empty() { ", the accounts before " (layout::name(account)) " on that day" }
        @if rows > 0 { ", and " (layout::thousands(rows as u64)) " rows of the next account" }
    }
}

fn exports(filter: &LogPageFilter<'_>, order: RowOrder, cursor: &str) -> Markup {
    // An export begins at the oldest row, so it can only use a cursor of the order [`RowOrder::Oldest`].
    let from = if order == RowOrder::Oldest { cursor } else { "" };
    let export = to_query(&[&filter[..], &[("cursor", from)]].concat());
    html! {
        p class="pages" {
            @for (form, name) in FORMS {
                a href={ "/log/export/" (form.as_str()) (export) } { "Export as " (name) } " "
            }
        }
        p class="none" {
            @if order == RowOrder::Oldest { "Starting at this page's first row" } @else { "All rows of this time, starting at the oldest" }
            ", at most " (layout::thousands(EXPORTED_MAX.try_into().unwrap_or(u64::MAX)))
            " rows. An incomplete file is named weir-log-part; weir log export writes all rows."
        }
    }
}

/// The names and values of the filter's fields.
type LogPageFilter<'a> = [(&'static str, &'a str); 8];

fn filter<'a>(context: &PageContext<'a>) -> LogPageFilter<'a> {
    let wanted = |name: &str| context.query.text(name);
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

/// Returns a file with the rows that match the query's filters. The file begins with the row at the query's cursor. If there are
/// too many rows for one file, the file is incomplete and has another name than a complete file. In JSON lines, the last line of
/// an incomplete file contains the cursor of the next row: `{"next":"..."}`.
pub(super) async fn export(context: &PageContext<'_>, form: &str) -> Result<PageResponse, AdminError> {
    let form: LogForm = form
        .parse()
        .map_err(|error: UnknownLogForm| AdminError::not_found(error.to_string()))?;
    let asked = read_question(&[&filter(context)[..], &[("cursor", context.query.text("cursor"))]].concat())?;
    let LogExportFile { mut bytes, next } = context.log_file(ExportLog::new(form, asked), EXPORTED_MAX).await?;
    let name = if next.is_some() { "weir-log-part" } else { "weir-log" };
    if let Some(next) = next.filter(|_| form == LogForm::JsonLines) {
        bytes.extend(format!("{}\n", json!({ "next": next })).into_bytes());
    }
    Ok(PageResponse::download(
        &format!("{name}.{form}"),
        form.media_type(),
        bytes,
    ))
}

fn filters(filter: &LogPageFilter<'_>, order: RowOrder) -> Markup {
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
                    option value="" selected[order == RowOrder::Newest] { "Newest first" }
                    option value=(OLDEST) selected[order == RowOrder::Oldest] { "Oldest first" }
                }
            }
            button { "Show" }
        }
    }
}

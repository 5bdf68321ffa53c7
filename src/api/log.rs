//! Requests of the admin API about rows of the consumption log, and their answers.

pub(crate) mod checks;

use std::{fmt, ops::RangeInclusive, str::FromStr};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    api::{
        question, schema, text_value,
        values::{AccountId, Moment, Nullable, nullable, with_millis},
    },
    domain::{
        keys::KeyId,
        ledger::{
            consumption::{ChargeLine, Row},
            ids::Tag,
        },
        wire::usage::Usage,
    },
};

/// A calendar day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UtcDay(pub(crate) Date);

text_value!(UtcDay, "a date such as 2027-01-31");

impl FromStr for UtcDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let date = text.parse().map(Self);
        date.map_err(|_| "give a date such as 2027-01-31".to_owned())
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A range of HTTP statuses: a single status such as 429, or a class such as 5xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusRange(pub(crate) RangeInclusive<u16>);

text_value!(StatusRange, "a status such as 429, or a class of them such as 5xx");

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
        let range = match class {
            Some(class) => class.parse::<u16>().map(|class| class * 100..=class * 100 + 99),
            None => text.parse::<u16>().map(|status| status..=status),
        };
        let range = range.ok().filter(|range| (100..=999).contains(range.start()));
        let wanted = || "give an HTTP status such as 429, or a class of statuses such as 5xx".to_owned();
        range.map(Self).ok_or_else(wanted)
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last {
            write!(to, "{first}")
        } else {
            write!(to, "{}xx", first / 100)
        }
    }
}

/// The format of an exported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// JSON lines: one JSON object per line.
    JsonLines,
    /// CSV according to RFC 4180.
    Csv,
    /// Parquet with the same columns as the files of the log backend.
    Parquet,
}

text_value!(LogForm, "jsonl, csv or parquet");

impl LogForm {
    /// Returns the format's name, which is also the file extension.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The media types of all formats.
    const MEDIA: [&'static str; 3] = [
        Self::JsonLines.media_type(),
        Self::Csv.media_type(),
        Self::Parquet.media_type(),
    ];

    /// Returns the format's media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

impl FromStr for LogForm {
    type Err = UnknownLogForm;

    fn from_str(text: &str) -> Result<Self, UnknownLogForm> {
        let all = [Self::JsonLines, Self::Csv, Self::Parquet];
        all.into_iter().find(|form| form.as_str() == text).ok_or(UnknownLogForm)
    }
}

/// The error for a string that is not the name of an export format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the format of an export must be jsonl, csv or parquet")]
pub(crate) struct UnknownLogForm;

impl fmt::Display for LogForm {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

/// Declares the two requests whose fields filter rows of the log: a query for a page, and an export.
macro_rules! questions_about_rows {
    ($($(#[$about:meta])* $field:ident: $type:ty,)*) => {
        /// Returns a page of rows, sorted by day, then account, then the time at which the request ended.
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct QueryLog {
            $($(#[$about])* pub(crate) $field: Option<$type>,)*
        }

        /// Returns all matching rows as a file. The fields `limit` and `lines` have no effect.
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct ExportLog {
            /// The format of the file.
            pub(crate) form: LogForm,
            $($(#[$about])* pub(crate) $field: Option<$type>,)*
        }

        impl ExportLog {
            /// Builds an export of the rows that a query selects.
            pub(crate) fn new(form: LogForm, QueryLog { $($field),* }: QueryLog) -> Self {
                Self { form, $($field),* }
            }

            /// Splits the export into its format and the query that selects its rows.
            pub(crate) fn parts(self) -> (LogForm, QueryLog) {
                let Self { form, $($field),* } = self;
                (form, QueryLog { $($field),* })
            }
        }
    };
}

questions_about_rows! {
    /// Only rows of the account with this name.
    account: AccountId,
    /// Only rows of the key with this id.
    key: KeyId,
    /// Only rows of requests that named this model or were served by it.
    model: String,
    /// Only rows with this final HTTP status, or with a status of this class.
    status: StatusRange,
    /// Only rows with this tag.
    tag: Tag,
    /// Only rows of requests that ended at this time or later.
    from: Moment,
    /// Only rows of requests that ended within this number of hours before now, by the store's clock. Cannot be combined with
    /// `from`.
    hours: u32,
    /// Only rows of requests that ended before this time.
    until: Moment,
    /// The maximum number of rows in the answer; 500 if omitted.
    limit: usize,
    /// The maximum time to search for rows, in milliseconds. The default is 5000, and a larger value counts as 5000.
    look_ms: u64,
    /// The `next` of the previous page. The answer continues after that page.
    cursor: String,
    /// Whether each row includes the lines of its charge, one for each kind of token or call.
    lines: bool,
}

question!(QueryLog => LogQueryPage: GET "/v1/log", Viewer);
question!(ExportLog => String: GET "/v1/log/export/{form}", Viewer;
    const IS_LONG: bool = true;
    const MEDIA: &'static [&'static str] = &LogForm::MEDIA;
);

/// Returns a page of rows, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct ListNewestRows(pub(crate) QueryLog);

question!(ListNewestRows => NewestPage: GET "/v1/log/newest", Viewer);

/// Returns the most recent rows of a key within the last 31 days, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListLatestRows {
    /// The name of the key's account.
    pub(crate) account: AccountId,
    /// The key's id.
    pub(crate) key: KeyId,
    /// The maximum number of rows in the answer; 100 if omitted.
    pub(crate) limit: Option<usize>,
    /// Whether each row includes the lines of its charge, one for each kind of token or call.
    pub(crate) lines: Option<bool>,
}

question!(ListLatestRows => LatestRows: GET "/v1/log/latest", Viewer);

/// A page of rows, with the cursor of the next page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogQueryPage {
    /// The rows of this page.
    pub(crate) rows: Vec<LogRow>,
    /// The cursor of the next page; null: there are no further rows.
    pub(crate) next: Option<String>,
    /// The position up to which the log has been searched; null: the log has been searched to its end.
    pub(crate) looked_through: Option<SearchPosition>,
    /// A message for the user if the filter names a model that is not in the catalogue; null otherwise.
    pub(crate) unknown_model: Option<String>,
}

/// The position in the log up to which it has been searched.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchPosition {
    /// The first day that has not been searched completely.
    pub(crate) before_day: UtcDay,
    /// The first account, by name, that has not been searched completely on that day.
    pub(crate) before_account: String,
    /// The number of rows of that account and day that have been searched.
    pub(crate) rows_of_account: usize,
}

/// A page of rows, the newest first, with the cursor of the next page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NewestPage {
    /// The rows of this page.
    pub(crate) rows: Vec<LogRow>,
    /// The cursor of the next page, which has older rows; null: there are no older rows.
    pub(crate) next: Option<String>,
    /// The number of rows that were searched.
    pub(crate) looked_at: usize,
    /// A message for the user if the filter names a model that is not in the catalogue; null otherwise.
    pub(crate) unknown_model: Option<String>,
}

/// The most recent rows of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatestRows {
    /// The rows, the newest first.
    pub(crate) rows: Vec<LogRow>,
    /// The reason why the log backend could not be read; null: it was read, or reading it was not necessary.
    pub(crate) not_read: Option<String>,
    /// Whether the rows are complete. They are complete if they are all rows of the last 31 days, or if their number reaches the
    /// request's `limit`.
    pub(crate) whole: bool,
}

/// A row of the consumption log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogRow {
    /// The time at which the request ended.
    #[serde(serialize_with = "with_millis")]
    pub(crate) time: Option<Moment>,
    /// The stored fields of the row.
    #[serde(flatten)]
    pub(crate) row: Row,
    /// The lines of the row's charge; left out if they were not requested. Null: the catalogue no longer has the prices of the
    /// charge.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) price_lines: Nullable<Vec<ChargeLine>>,
}

impl LogRow {
    /// Builds the row of an answer from a stored row and the lines of its charge.
    pub(crate) fn new(row: Row, price_lines: Nullable<Vec<ChargeLine>>) -> Self {
        Self {
            time: Moment::of_millis(row.time_ms),
            row,
            price_lines,
        }
    }
}

schema!(Tag, { "type": "string", "description": Tag::RULE });
schema!(ChargeLine, {
    "type": "object",
    "properties": {
        "model": { "type": "string", "description": "the model that consumed this part, if several models served the request" },
        "counted": { "type": "string", "description": "the name of a count in the row, or `request` for the fee of a request" },
        "count": { "type": "integer" },
        "price_usd": { "type": "string", "description": "the price in USD per unit of `per`" },
        "per": { "enum": ["1M tokens", "call"] },
        "factor": { "type": "string", "description": "the factor by which the price is multiplied; left out if it is 1" },
        "cost_usd": { "type": "string", "description": "the cost in USD, exact and not rounded" },
    },
    "required": ["counted", "count", "price_usd", "per", "cost_usd"],
});
schema!(Usage, { "type": "object", "description": "Counts that are zero are left out.", "properties": counts() });
schema!(Row, { "type": "object", "properties": properties(), "required": required() });

/// Returns the names of the fields that every row has.
fn required() -> Vec<&'static str> {
    "time_ms admitted_ms request_id account key_id protocol model_asked model provider status outcome stream usage_source \
     price_version cost_nano_usd latency_ms ttft_ms"
        .split(' ')
        .collect()
}

fn properties() -> Map<String, Value> {
    let kinds = [
        (
            "time_ms admitted_ms status cost_nano_usd latency_ms hold_nano_usd attempts",
            json!({ "type": "integer" }),
        ),
        (
            "request_id account key_id protocol model_asked model provider outcome usage_source service_tier speed geo price_version \
             transport translated",
            json!({ "type": "string" }),
        ),
        ("stream", json!({ "type": "boolean" })),
        ("ttft_ms", json!({ "type": ["integer", "null"] })),
        ("tags losses", json!({ "type": "array", "items": { "type": "string" } })),
        ("parts", json!({ "type": "array", "items": { "type": "object" } })),
    ];
    let named = kinds
        .iter()
        .flat_map(|(names, kind)| names.split(' ').map(|name| (name.to_owned(), kind.clone())));
    counts().into_iter().chain(named).collect()
}

fn counts() -> Map<String, Value> {
    let count = |name: &str| (name.to_owned(), json!({ "type": "integer", "minimum": 0 }));
    Usage::NAMES.map(count).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_or_a_class() {
        for (text, range) in [("200", 200..=200), ("5xx", 500..=599), ("499", 499..=499)] {
            let read: StatusRange = text.parse().unwrap();
            assert_eq!((read.to_string(), read.0), (text.to_owned(), range));
        }
        for wrong in ["", "xx", "5x", "50xx", "0xx", "ok", "99", "-1", "70000"] {
            assert!(wrong.parse::<StatusRange>().is_err(), "{wrong}");
        }
    }

    /// A row's fields as stores keep them.
    const KEPT: &str = concat!(
        r#""time_ms":1793491200000,"admitted_ms":1793491199995,"request_id":"r","account":"a","#,
        r#""key_id":"key_0000000000000001","protocol":"messages","model_asked":"a \"model\"","model":"m","#,
        r#""provider":"p","status":200,"outcome":"complete","stream":true,"tags":["team=a"],"#,
        r#""input_uncached":9007199254740993,"usage_source":"reported","parts":[{"run":"advisor","model":"n","#,
        r#""output_text":1,"cost_nano_usd":1}],"speed":"fast","price_version":"1","cost_nano_usd":-7,"latency_ms":5,"#,
        r#""ttft_ms":null,"hold_nano_usd":9007199254740993,"attempts":3"#,
    );

    #[test]
    fn a_row_is_told_as_it_is_kept_between_its_time_and_its_lines_and_reads_back() {
        let row: Row = serde_json::from_str(&format!("{{{KEPT}}}")).unwrap();
        for (lines, end) in [
            (None, ""),
            (Some(None), ",\"price_lines\":null"),
            (Some(Some(Vec::new())), ",\"price_lines\":[]"),
        ] {
            let told = serde_json::to_string(&LogRow::new(row.clone(), lines.clone())).unwrap();
            assert_eq!(told, format!("{{\"time\":\"2026-11-01T00:00:00.000Z\",{KEPT}{end}}}"));
            let read: LogRow = serde_json::from_str(&told).unwrap();
            assert_eq!((read.row, read.price_lines), (row.clone(), lines));
        }
    }

    #[test]
    fn a_rows_time_has_three_digits_of_its_second_whatever_they_are() {
        let row: Row = serde_json::from_str(&format!("{{{KEPT}}}")).unwrap();
        for (millis, time) in [
            (0, Some("2026-11-01T00:00:00.000Z")),
            (7, Some("2026-11-01T00:00:00.007Z")),
            (730, Some("2026-11-01T00:00:00.730Z")),
            (i64::MAX - row.time_ms, None),
        ] {
            let time_ms = row.time_ms + millis;
            let row = Row { time_ms, ..row.clone() };
            let told = serde_json::to_string(&LogRow::new(row, None)).unwrap();
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["time"], json!(time));
        }
    }
}

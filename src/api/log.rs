//! Questions about rows of the consumption log.

pub(crate) mod checks;
mod row;

use std::{fmt, ops::RangeInclusive, str::FromStr};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{names::AccountId, question, schema::text_value, values::Moment};
use crate::domain::{keys::key::KeyId, ledger::tag::Tag};
pub(crate) use row::LogRow;

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day(pub(crate) Date);

text_value!(Day, "a date such as 2027-01-31");

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let date = text.parse().map(Self);
        date.map_err(|_| "a date such as 2027-01-31".to_owned())
    }
}

impl fmt::Display for Day {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A final status, or a class of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) RangeInclusive<u16>);

text_value!(Statuses, "a status such as 429, or a class of them such as 5xx");

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
        let range = match class {
            Some(class) => class.parse::<u16>().map(|class| class * 100..=class * 100 + 99),
            None => text.parse::<u16>().map(|status| status..=status),
        };
        let range = range.ok().filter(|range| (100..=999).contains(range.start()));
        let wanted = || "a status such as 429, or a class of them such as 5xx".to_owned();
        range.map(Self).ok_or_else(wanted)
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last {
            write!(to, "{first}")
        } else {
            write!(to, "{}xx", first / 100)
        }
    }
}

/// A form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// JSON lines.
    JsonLines,
    /// CSV, RFC 4180.
    Csv,
    /// Parquet, with the columns of the log's own files.
    Parquet,
}

text_value!(LogForm, "jsonl, csv or parquet");

impl LogForm {
    /// Its name, which files of it end with.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The media types of all of them.
    const MEDIA: [&'static str; 3] = [Self::JsonLines.media(), Self::Csv.media(), Self::Parquet.media()];

    /// Its media type.
    pub(crate) const fn media(self) -> &'static str {
        match self {
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

impl FromStr for LogForm {
    type Err = NotAForm;

    fn from_str(text: &str) -> Result<Self, NotAForm> {
        let all = [Self::JsonLines, Self::Csv, Self::Parquet];
        all.into_iter().find(|form| form.as_str() == text).ok_or(NotAForm)
    }
}

/// A text that is no form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an export is jsonl, csv or parquet")]
pub(crate) struct NotAForm;

impl fmt::Display for LogForm {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

/// Declares the questions whose fields choose rows.
macro_rules! questions_about_rows {
    ($($(#[$about:meta])* $field:ident: $type:ty,)*) => {
        /// Reads rows by day, then account, then the time they ended, some at a time.
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct QueryLog {
            $($(#[$about])* pub(crate) $field: Option<$type>,)*
        }

        /// Reads rows as a file, all there are. It has neither lines of charges nor a limit.
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct ExportLog {
            /// How the rows are written.
            pub(crate) form: LogForm,
            $($(#[$about])* pub(crate) $field: Option<$type>,)*
        }

        impl ExportLog {
            /// An export of these rows.
            pub(crate) fn new(form: LogForm, QueryLog { $($field),* }: QueryLog) -> Self {
                Self { form, $($field),* }
            }

            /// The form, and the rows.
            pub(crate) fn parts(self) -> (LogForm, QueryLog) {
                let Self { form, $($field),* } = self;
                (form, QueryLog { $($field),* })
            }
        }
    };
}

questions_about_rows! {
    /// Of this account alone.
    account: AccountId,
    /// Of this key alone.
    key: KeyId,
    /// Of this model alone: it was asked for, or has served.
    model: String,
    /// With this final status, or one of a class of them.
    status: Statuses,
    /// With this tag.
    tag: Tag,
    /// Of requests that ended then or later.
    from: Moment,
    /// In place of `from`: of the last so many hours, by the store's clock.
    hours: u32,
    /// Of requests that ended before then.
    until: Moment,
    /// So many at the most; 500 unless it is named.
    limit: usize,
    /// The most milliseconds that are spent on looking, if that is less than usual.
    look_ms: u64,
    /// From a place on, as the answer before has it.
    cursor: String,
    /// Each row with the lines of its charge.
    lines: bool,
}

question!(QueryLog => LogPage: GET "/v1/log", Viewer);
question!(ExportLog => String: GET "/v1/log/export/{form}", Viewer;
    const IS_LONG: bool = true;
    const MEDIA: &'static [&'static str] = &LogForm::MEDIA;
);

/// Reads rows, the newest first, some at a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct ListNewestRows(pub(crate) QueryLog);

question!(ListNewestRows => NewestPage: GET "/v1/log/newest", Viewer);

/// Reads the latest rows of a key, the newest first, of the last 31 days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListLatestRows {
    /// The key's account.
    pub(crate) account: AccountId,
    /// The key.
    pub(crate) key: KeyId,
    /// So many at the most; 100 unless it is named.
    pub(crate) limit: Option<usize>,
    /// Each row with the lines of its charge.
    pub(crate) lines: Option<bool>,
}

question!(ListLatestRows => LatestRows: GET "/v1/log/latest", Viewer);

/// Some rows, and where there are more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogPage {
    /// The rows.
    pub(crate) rows: Vec<LogRow>,
    /// The cursor of further ones; null: these were all.
    pub(crate) next: Option<String>,
    /// How far the log has been looked through; null: to its end.
    pub(crate) looked_through: Option<LookedThrough>,
    /// The model that was asked about, if the catalogue does not have it.
    pub(crate) unknown_model: Option<String>,
}

/// How far the log has been looked through.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LookedThrough {
    /// The days before this one.
    pub(crate) before_day: Day,
    /// Of that day the accounts before this one.
    pub(crate) before_account: String,
    /// How many rows of that account.
    pub(crate) rows_of_account: usize,
}

/// Some rows, and where there are older ones.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NewestPage {
    /// The rows.
    pub(crate) rows: Vec<LogRow>,
    /// The cursor of older ones; null: these were all.
    pub(crate) next: Option<String>,
    /// How many rows were looked at.
    pub(crate) looked_at: usize,
    /// The model that was asked about, if the catalogue does not have it.
    pub(crate) unknown_model: Option<String>,
}

/// The latest rows of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatestRows {
    /// The rows.
    pub(crate) rows: Vec<LogRow>,
    /// Why the log's home could not be read; null: it was, or had not to be.
    pub(crate) not_read: Option<String>,
    /// Whether there are no more of these days, or as many as were asked for.
    pub(crate) whole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_or_a_class() {
        for (text, range) in [("200", 200..=200), ("5xx", 500..=599), ("499", 499..=499)] {
            let read: Statuses = text.parse().unwrap();
            assert_eq!((read.to_string(), read.0), (text.to_owned(), range));
        }
        for wrong in ["", "xx", "5x", "50xx", "0xx", "ok", "99", "-1", "70000"] {
            assert!(wrong.parse::<Statuses>().is_err(), "{wrong}");
        }
    }
}

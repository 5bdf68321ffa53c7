//! Requests of the admin API that check and repair the consumption log: daily sums, log backends, quota counters, and the
//! journal.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{question, values::Usd},
    UtcDay,
};
use crate::api::{schema, values::AccountId};
use crate::domain::{
    ledger::{
        daily_sums::{SumDifference, SumSubject, Sums},
        period::Period,
        proof::{CounterBasis, CounterDifference},
    },
    money::NanoUsd,
    wire::usage::Usage,
};

schema!(Period, { "type": "string", "description": "`all`, a day such as d20261121, a week such as w2026W47, or a month such as m202611" });
schema!(CounterBasis, { "enum": ["daily sums", "counters of its keys"] });

/// Declares requests about one day of one account.
macro_rules! of_day {
    ($($(#[$about:meta])* $name:ident;)*) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// The account's name.
            pub(crate) account: AccountId,
            /// The day in UTC.
            pub(crate) day: UtcDay,
        }
    )* };
}

of_day! {
    /// Compares the daily sums of an account with its rows. It reads the rows in the log backend, and the rows of this node that
    /// have not reached the log backend yet.
    VerifyLog;
    /// Replaces the daily sums of an account with the sums of its rows.
    MendLog;
    /// Copies rows from the former log backend to the current log backend if they are missing there.
    FillLogHome;
    /// Removes the rows of a day from the store if the current log backend has all of them. The store must be the former log
    /// backend.
    RemoveFormerRows;
}

question!(VerifyLog => VerifiedDay: GET "/v1/log/verify", Viewer; const IS_LONG: bool = true;);
question!(MendLog => MendedDay: POST "/v1/log/mend", Owner; const IS_LONG: bool = true;);
question!(FillLogHome => FilledDay: POST "/v1/log/home/fill", Owner; const IS_LONG: bool = true;);
question!(RemoveFormerRows => RemovedDay: POST "/v1/log/former/remove", Owner; const IS_LONG: bool = true;);

/// The result of comparing the daily sums of an account with its rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedDay {
    /// The account's name.
    pub(crate) account: String,
    /// The day in UTC.
    pub(crate) day: UtcDay,
    /// The name of the log backend.
    pub(crate) home: String,
    /// The number of rows in the log backend.
    pub(crate) rows: u64,
    /// The number of this node's rows that have not reached the log backend yet.
    pub(crate) on_their_way: u64,
    /// The number of duplicate rows. A row is a duplicate if its request already has another row.
    pub(crate) again: u64,
    /// The nodes that may not have sent all their rows to the log backend yet. The sums already include the rows that a node has
    /// not sent. Therefore these rows may be the reason for the differences, and the comparison must be repeated later. The list
    /// is empty if nothing differs.
    pub(crate) behind: Vec<String>,
    /// The number of rows that are counted in the sums but were not found.
    pub(crate) missing: u64,
    /// Whether the sums of the account's keys add up to the sums of the account.
    pub(crate) sums_agree: bool,
    /// The differences between sums and rows.
    pub(crate) differences: Vec<SumsDifference>,
}

/// The answer after the daily sums of an account were replaced by the sums of its rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MendedDay {
    /// The account's name.
    pub(crate) account: String,
    /// The day in UTC.
    pub(crate) day: UtcDay,
    /// Always true, because the daily sums now equal the sums of the rows.
    pub(crate) mended: bool,
}

/// The answer after the rows of a day were copied to the log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FilledDay {
    /// The account's name.
    pub(crate) account: String,
    /// The day in UTC.
    pub(crate) day: UtcDay,
    /// The name of the log backend.
    pub(crate) home: String,
    /// The number of copied rows.
    pub(crate) rows: u64,
}

/// The answer after the rows of a day were removed from the store, which is the former log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemovedDay {
    /// The account's name.
    pub(crate) account: String,
    /// The day in UTC.
    pub(crate) day: UtcDay,
    /// The number of removed rows.
    pub(crate) rows: u64,
    /// Whether the log backend provably has all rows of the day. If not, nothing was removed from the store.
    pub(crate) proven: bool,
}

/// A difference between the daily sums and the sums of the rows, for one subject (account, key or tag) and one model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SumsDifference {
    /// The subject of the sums: an account, a key or a tag.
    pub(crate) of: SumsSubject,
    /// The key's id, or the tag; null for an account, and for the tags without separate sums.
    pub(crate) name: Option<String>,
    /// The name of the model.
    pub(crate) model: String,
    /// The values of the stored sums that differ from the sums of the rows.
    pub(crate) kept: DifferingSums,
    /// The values of the rows' sums that differ from the stored sums.
    pub(crate) rows: DifferingSums,
}

/// The subject of daily sums or of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SumsSubject {
    /// All requests of an account.
    Account,
    /// The requests of one key.
    Key,
    /// The requests with tags that have no separate sums. The number of tags with separate sums per day is limited.
    OtherTags,
    /// The requests with one tag.
    Tag,
}

impl fmt::Display for SumsSubject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Account => "account",
            Self::Key => "key",
            Self::OtherTags => "other_tags",
            Self::Tag => "tag",
        })
    }
}

/// One side of a comparison of two sums: only the values that differ from the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DifferingSums {
    /// The number of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// The number of rows whose status is not 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    /// The cost of the rows in USD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<Usd>,
    /// The cost of the rows in nano-USD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_nano_usd: Option<NanoUsd>,
    /// The rows' numbers of tokens and calls, by kind.
    #[serde(flatten)]
    pub(crate) usage: Usage,
    /// The sum of the rows' digests. It is left out if another value differs. If it is present, all other values are equal, so
    /// the difference is in a column that is not added up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

impl DifferingSums {
    fn between(sums: &Sums, others: &Sums) -> Self {
        let cost = (sums.cost_nano_usd != others.cost_nano_usd).then_some(sums.cost_nano_usd);
        let mut counts = sums.usage.parts();
        for (count, other) in counts.iter_mut().zip(others.usage.parts()) {
            if *count == other {
                *count = 0;
            }
        }
        let others = Sums {
            digest: sums.digest,
            ..*others
        };
        let is_of_columns = *sums == others;
        Self {
            requests: (sums.requests != others.requests).then_some(sums.requests),
            errors: (sums.errors != others.errors).then_some(sums.errors),
            cost_usd: cost.map(Usd),
            cost_nano_usd: cost,
            usage: Usage::from_parts(counts),
            digest: is_of_columns.then(|| format!("{:012x}", sums.digest)),
        }
    }
}

impl From<&SumDifference> for SumsDifference {
    fn from(difference: &SumDifference) -> Self {
        let (of, name) = match &difference.subject {
            SumSubject::Account => (SumsSubject::Account, None),
            SumSubject::Key(id) => (SumsSubject::Key, Some(id.as_str())),
            SumSubject::OtherTags => (SumsSubject::OtherTags, None),
            SumSubject::Tag(tag) => (SumsSubject::Tag, Some(tag.as_str())),
        };
        Self {
            of,
            name: name.map(str::to_owned),
            model: difference.model.to_string(),
            kept: DifferingSums::between(&difference.kept, &difference.of_rows),
            rows: DifferingSums::between(&difference.of_rows, &difference.kept),
        }
    }
}

/// Reports that the given days of all accounts were compared and that nothing differs. The node records a verification of the log
/// if yesterday is one of the days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteVerifiedLog {
    /// The first day that was compared.
    pub(crate) from: UtcDay,
    /// The day after the last day that was compared.
    pub(crate) until: UtcDay,
}

question!(NoteVerifiedLog => VerificationReply: POST "/v1/log/verified", Owner);

/// The answer to the report of a verification.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerificationReply {
    /// Whether the node has recorded a verification: true if yesterday is one of the days.
    pub(crate) counts: bool,
}

/// Returns the names of the log backends and the days that they cover.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowLogHome {}

question!(ShowLogHome => LogBackendView: GET "/v1/log/home", Viewer);

/// The names of the log backends, and the days that they cover.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogBackendView {
    /// The name of the current log backend: store, files or postgres.
    pub(crate) home: String,
    /// The name of the former log backend; null: none is configured.
    pub(crate) former: Option<String>,
    /// The first day whose rows are retained.
    pub(crate) from: UtcDay,
    /// The day after the last day that can have rows: tomorrow.
    pub(crate) until: UtcDay,
}

/// Compares the counters of the quotas with the daily sums.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyCounters {
    /// The account's name.
    pub(crate) account: AccountId,
    /// The first day. Each period that contains one of the days is compared.
    pub(crate) from: UtcDay,
    /// The day after the last day.
    pub(crate) until: UtcDay,
}

question!(VerifyCounters => VerifiedCounters: GET "/v1/log/counters", Viewer; const IS_LONG: bool = true;);

/// The result of comparing the quota counters of an account with the daily sums.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedCounters {
    /// The account's name.
    pub(crate) account: String,
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// The periods that could not be compared, because their counters kept changing while they were read.
    pub(crate) moving: Vec<Period>,
    /// Whether the account is older than the daily sums. If it is, its counter of total spending is compared only with the
    /// counters of its keys.
    pub(crate) older_than_sums: bool,
    /// The counters that differ from the expected value.
    pub(crate) differences: Vec<WrongCounter>,
}

/// A counter that differs from the expected value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WrongCounter {
    /// The subject of the counter: the account or a key.
    pub(crate) of: SumsSubject,
    /// The key's id; null for a counter of the account.
    pub(crate) name: Option<String>,
    /// The period whose spending the counter holds.
    pub(crate) period: Period,
    /// The value of the counter in USD.
    pub(crate) counter_usd: Usd,
    /// The expected value in USD.
    pub(crate) expected_usd: Usd,
    /// The source of the expected value: daily sums, or the counters of the account's keys.
    pub(crate) by: CounterBasis,
}

impl From<&CounterDifference> for WrongCounter {
    fn from(difference: &CounterDifference) -> Self {
        let of_key = difference.key.as_ref().map(|key| (SumsSubject::Key, key.to_string()));
        let (of, name) = of_key.unzip();
        Self {
            of: of.unwrap_or(SumsSubject::Account),
            name,
            period: difference.period,
            counter_usd: Usd(difference.counter),
            expected_usd: Usd(difference.expected),
            by: difference.basis,
        }
    }
}

/// Compares the rows in this process's journals with the rows of the log. Each answer covers a portion of the journals.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyJournal {
    /// The first day. Only rows of requests that ended on this day or later are compared.
    pub(crate) from: UtcDay,
    /// The day after the last day.
    pub(crate) until: UtcDay,
    /// Only rows of the account with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// The `next` of the previous answer. The comparison continues after the portion of that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

question!(VerifyJournal => JournalDays: GET "/v1/log/journal", Viewer; const IS_LONG: bool = true;);

/// Compares the rows in this process's journals with the rows of the log, and copies missing rows to the log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct FillFromJournal(pub(crate) VerifyJournal);

question!(FillFromJournal => JournalDays: POST "/v1/log/journal/fill", Owner; const IS_LONG: bool = true;);

/// The result of comparing a portion of the journals with the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDays {
    /// The result for each account and day.
    pub(crate) days: Vec<JournalDayView>,
    /// The position at which the next portion begins; null: this was the last portion.
    pub(crate) next: Option<String>,
}

/// The result of comparing the journals' rows of one account and day with the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDayView {
    /// The account's name.
    pub(crate) account: String,
    /// The day in UTC.
    pub(crate) day: UtcDay,
    /// The number of rows in the journals that were compared with the log.
    pub(crate) rows: u64,
    /// The number of rows that the log lacks.
    pub(crate) missing: u64,
    /// The number of rows whose charge in the log differs from the journal's.
    pub(crate) differing: u64,
    /// The number of missing rows that were copied to the log backend.
    pub(crate) brought: u64,
    /// The request ids of the first few missing rows.
    pub(crate) requests: Vec<String>,
}

#[cfg(test)]
mod tests;

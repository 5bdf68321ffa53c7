//! Questions about the completeness of the log: its sums, its backends, its counters and the journal.

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
        counters::{CounterBasis, CounterDifference},
        daily_sums::{SumDifference, SumSubject, Sums},
        period::Period,
    },
    money::NanoUsd,
    wire::usage::Usage,
};

schema!(Period, { "type": "string", "description": "all, or such as d20261121, w2026W47 and m202611" });
schema!(CounterBasis, { "enum": ["daily sums", "counters of its keys"] });

/// Declares questions about a day of an account.
macro_rules! of_day {
    ($($(#[$about:meta])* $name:ident;)*) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// The account.
            pub(crate) account: AccountId,
            /// The day.
            pub(crate) day: UtcDay,
        }
    )* };
}

of_day! {
    /// Compares the daily sums of an account with its rows: those in the log backend, and this node's rows on their way there.
    VerifyLog;
    /// Replaces the daily sums by the sums of the rows.
    MendLog;
    /// Copies rows that are missing in the log backend from the former backend.
    FillLogHome;
    /// Removes rows from the store, the former log backend, if the present backend has all rows of that day.
    RemoveFormerRows;
}

question!(VerifyLog => VerifiedDay: GET "/v1/log/verify", Viewer; const IS_LONG: bool = true;);
question!(MendLog => MendedDay: POST "/v1/log/mend", Owner; const IS_LONG: bool = true;);
question!(FillLogHome => FilledDay: POST "/v1/log/home/fill", Owner; const IS_LONG: bool = true;);
question!(RemoveFormerRows => RemovedDay: POST "/v1/log/former/remove", Owner; const IS_LONG: bool = true;);

/// The result of comparing a day with its rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: UtcDay,
    /// The name of the log backend.
    pub(crate) home: String,
    /// The number of rows in the log backend.
    pub(crate) rows: u64,
    /// The number of this node's rows on their way there.
    pub(crate) on_their_way: u64,
    /// The number of duplicate rows, of requests that already have a row.
    pub(crate) again: u64,
    /// If anything differs: the nodes whose journals may still bring rows that the sums count. Then the day is open, not wrong.
    pub(crate) behind: Vec<String>,
    /// How many more rows the sums count than there are.
    pub(crate) missing: u64,
    /// Whether the sums of the keys add up to the account's.
    pub(crate) sums_agree: bool,
    /// The differences.
    pub(crate) differences: Vec<SumsDifference>,
}

/// A day whose sums are now those of its rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MendedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: UtcDay,
    /// Always true.
    pub(crate) mended: bool,
}

/// A day whose rows were copied to the log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FilledDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: UtcDay,
    /// The name of the log backend.
    pub(crate) home: String,
    /// The number of copied rows.
    pub(crate) rows: u64,
}

/// A day whose rows were removed from the store, the former log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemovedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: UtcDay,
    /// The number of removed rows.
    pub(crate) rows: u64,
    /// Whether the log backend has all rows of the day, and the store none. If not, the store still has all its rows.
    pub(crate) proven: bool,
}

/// Differing sums of one subject and model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SumsDifference {
    /// The subject of the sums.
    pub(crate) of: SumsSubject,
    /// The id of the key, or the tag.
    pub(crate) name: Option<String>,
    /// The model.
    pub(crate) model: String,
    /// The stored sums that differ.
    pub(crate) kept: DifferingSums,
    /// The sums of the rows that differ.
    pub(crate) rows: DifferingSums,
}

/// The subject of sums or counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SumsSubject {
    /// The account.
    Account,
    /// A key.
    Key,
    /// All tags beyond the limit of a day.
    OtherTags,
    /// A tag.
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

/// The values of sums that differ from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DifferingSums {
    /// The number of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// The number of rows with another status than 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    /// The cost of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<Usd>,
    /// The cost of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_nano_usd: Option<NanoUsd>,
    /// The counts of the rows.
    #[serde(flatten)]
    pub(crate) usage: Usage,
    /// The sum of the rows' digests, if nothing else differs: then another column of some row does.
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

/// Reports that these days of all accounts were compared without differences. Counts as a verification if yesterday is included.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteVerifiedLog {
    /// The first day.
    pub(crate) from: UtcDay,
    /// The day after the last one.
    pub(crate) until: UtcDay,
}

question!(NoteVerifiedLog => VerificationReply: POST "/v1/log/verified", Owner);

/// The result of reporting a verification.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerificationReply {
    /// Whether it counts: yesterday is one of the days.
    pub(crate) counts: bool,
}

/// Shows the log backends.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowLogHome {}

question!(ShowLogHome => LogBackendView: GET "/v1/log/home", Viewer);

/// The log backends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogBackendView {
    /// The name of the log backend: store, files or postgres.
    pub(crate) home: String,
    /// The name of the former backend; null: none is configured.
    pub(crate) former: Option<String>,
    /// The first day whose rows are kept.
    pub(crate) from: UtcDay,
    /// Tomorrow.
    pub(crate) until: UtcDay,
}

/// Compares the counters of quotas with the daily sums.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyCounters {
    /// The account.
    pub(crate) account: AccountId,
    /// The first day. The periods that contain one of the days are compared.
    pub(crate) from: UtcDay,
    /// The day after the last one.
    pub(crate) until: UtcDay,
}

question!(VerifyCounters => VerifiedCounters: GET "/v1/log/counters", Viewer; const IS_LONG: bool = true;);

/// The result of comparing counters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedCounters {
    /// The account.
    pub(crate) account: String,
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// Periods whose counters kept changing while they were read: their result is unknown.
    pub(crate) moving: Vec<Period>,
    /// Whether the account is older than the sums. If so, its counter of total spending is compared with those of its keys only.
    pub(crate) older_than_sums: bool,
    /// The differences.
    pub(crate) differences: Vec<WrongCounter>,
}

/// A counter that differs from the expected value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WrongCounter {
    /// The subject of the counter.
    pub(crate) of: SumsSubject,
    /// The key's id.
    pub(crate) name: Option<String>,
    /// The period.
    pub(crate) period: Period,
    /// The value of the counter.
    pub(crate) counter_usd: Usd,
    /// The expected value.
    pub(crate) expected_usd: Usd,
    /// The source of the expected value.
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

/// Compares the rows in this process's journals with those of the log, a portion at a time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyJournal {
    /// The first day: only requests that ended on it or later.
    pub(crate) from: UtcDay,
    /// The day after the last one.
    pub(crate) until: UtcDay,
    /// Only rows of this account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// The `next` of the previous answer: continues from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

question!(VerifyJournal => JournalDays: GET "/v1/log/journal", Viewer; const IS_LONG: bool = true;);

/// Compares the rows in this process's journals with those of the log, and copies missing ones to the log backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct FillFromJournal(pub(crate) VerifyJournal);

question!(FillFromJournal => JournalDays: POST "/v1/log/journal/fill", Owner; const IS_LONG: bool = true;);

/// The result for a portion of the journals.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDays {
    /// The result for each account and day.
    pub(crate) days: Vec<JournalDayView>,
    /// Where the next portion begins; null: this was the last one.
    pub(crate) next: Option<String>,
}

/// The journals' rows of one account and day.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDayView {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: UtcDay,
    /// The number of rows that were searched for in the log.
    pub(crate) rows: u64,
    /// How many of them were missing.
    pub(crate) missing: u64,
    /// How many have another charge in the log.
    pub(crate) differing: u64,
    /// How many of the missing rows were copied.
    pub(crate) brought: u64,
    /// The ids of the first missing requests.
    pub(crate) requests: Vec<String>,
}

#[cfg(test)]
mod tests;

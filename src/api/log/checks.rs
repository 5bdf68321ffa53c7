//! Questions about whether the log is whole: its sums, its home, its counters and the journal.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{names::AccountId, question, schema::schema, values::Usd},
    Day,
};
use crate::domain::{
    ledger::{
        counters::{Basis, CounterDifference},
        daily_sums::{Difference, Subject, Sums},
        period::Period,
    },
    money::NanoUsd,
    wire::usage::Usage,
};

schema!(Period, { "type": "string", "description": "all, or such as d20261121, w2026W47 and m202611" });
schema!(Basis, { "enum": ["daily sums", "counters of its keys"] });

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
            pub(crate) day: Day,
        }
    )* };
}

of_day! {
    /// Compares the daily sums of an account with its rows: those at the log's home, and of this node those on their way there.
    VerifyLog;
    /// Puts the sums of the rows in the place of the daily sums.
    MendLog;
    /// Brings the rows that the log's home lacks there from the home before it.
    FillLogHome;
    /// Removes rows from the store that was the log's home before, if the home is found to have all of that day.
    RemoveFormerRows;
}

question!(VerifyLog => VerifiedDay: GET "/v1/log/verify", Viewer; const IS_LONG: bool = true;);
question!(MendLog => MendedDay: POST "/v1/log/mend", Owner; const IS_LONG: bool = true;);
question!(FillLogHome => FilledDay: POST "/v1/log/home/fill", Owner; const IS_LONG: bool = true;);
question!(RemoveFormerRows => RemovedDay: POST "/v1/log/former/remove", Owner; const IS_LONG: bool = true;);

/// What a comparison of a day with its rows has found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: Day,
    /// The name of the log's home.
    pub(crate) home: String,
    /// How many rows it has.
    pub(crate) rows: u64,
    /// How many rows of this node are on their way there.
    pub(crate) on_their_way: u64,
    /// How many of all are further ones of requests that have a row already.
    pub(crate) again: u64,
    /// The lanes of nodes that may yet bring rows which the sums count, where anything differs: the day is open, not wrong.
    pub(crate) behind: Vec<String>,
    /// How many rows the sums count more than there are.
    pub(crate) missing: u64,
    /// Whether the keys' sums add up to the account's.
    pub(crate) sums_agree: bool,
    /// What differs.
    pub(crate) differences: Vec<SumsDifference>,
}

/// A day whose sums are those of its rows by now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MendedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: Day,
    /// That they are.
    pub(crate) mended: bool,
}

/// A day whose rows were brought to the log's home.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FilledDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: Day,
    /// The home's name.
    pub(crate) home: String,
    /// How many were brought.
    pub(crate) rows: u64,
}

/// A day whose rows have left the store that was the log's home.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemovedDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: Day,
    /// How many were removed.
    pub(crate) rows: u64,
    /// Whether the home has all of the day, and the store none. If not, all that the store had is still there.
    pub(crate) proven: bool,
}

/// Sums of one subject and model that differ.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SumsDifference {
    /// Whose they are.
    pub(crate) of: SumsSubject,
    /// The id of the key, or the tag.
    pub(crate) name: Option<String>,
    /// The model.
    pub(crate) model: String,
    /// What is kept, as far as it differs.
    pub(crate) kept: DifferingSums,
    /// What the rows add up to, as far as it differs.
    pub(crate) rows: DifferingSums,
}

/// Whose sums or counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SumsSubject {
    /// The account's.
    Account,
    /// A key's.
    Key,
    /// Those of all tags beyond the limit of a day.
    OtherTags,
    /// A tag's.
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

/// Those of some sums that differ from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DifferingSums {
    /// How many rows there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// How many of them have another status than 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    /// Their cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<Usd>,
    /// Their cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_nano_usd: Option<NanoUsd>,
    /// Their counts.
    #[serde(flatten)]
    pub(crate) usage: Usage,
    /// The sum of the rows' digests, where nothing else differs: then another column of some row does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

impl DifferingSums {
    fn of(sums: &Sums, others: &Sums) -> Self {
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
            usage: Usage::of_parts(counts),
            digest: is_of_columns.then(|| format!("{:012x}", sums.digest)),
        }
    }
}

impl From<&Difference> for SumsDifference {
    fn from(difference: &Difference) -> Self {
        let (of, name) = match &difference.subject {
            Subject::Account => (SumsSubject::Account, None),
            Subject::Key(id) => (SumsSubject::Key, Some(id.as_str())),
            Subject::OtherTags => (SumsSubject::OtherTags, None),
            Subject::Tag(tag) => (SumsSubject::Tag, Some(tag.as_str())),
        };
        Self {
            of,
            name: name.map(str::to_owned),
            model: difference.model.to_string(),
            kept: DifferingSums::of(&difference.kept, &difference.of_rows),
            rows: DifferingSums::of(&difference.of_rows, &difference.kept),
        }
    }
}

/// Says that these days of all accounts were compared and nothing differs. It counts if yesterday is among them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteVerifiedLog {
    /// The first day.
    pub(crate) from: Day,
    /// The first day that is too late.
    pub(crate) until: Day,
}

question!(NoteVerifiedLog => NotedVerified: POST "/v1/log/verified", Owner);

/// Whether it counts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NotedVerified {
    /// Whether yesterday is among the days.
    pub(crate) counts: bool,
}

/// Tells where the log is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowLogHome {}

question!(ShowLogHome => LogHome: GET "/v1/log/home", Viewer);

/// Where the log is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogHome {
    /// The name of its home: store, files or postgres.
    pub(crate) home: String,
    /// The name of the home before it; null: none is named.
    pub(crate) former: Option<String>,
    /// The first day that rows are kept of.
    pub(crate) from: Day,
    /// The first day that is yet to come.
    pub(crate) until: Day,
}

/// Compares the counters that quotas are checked by with the daily sums.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyCounters {
    /// The account.
    pub(crate) account: AccountId,
    /// Of periods that have one of the days from this one on.
    pub(crate) from: Day,
    /// The first day that is too late.
    pub(crate) until: Day,
}

question!(VerifyCounters => VerifiedCounters: GET "/v1/log/counters", Viewer; const IS_LONG: bool = true;);

/// What a comparison of counters has found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VerifiedCounters {
    /// The account.
    pub(crate) account: String,
    /// The periods whose counters were compared.
    pub(crate) compared: Vec<Period>,
    /// Periods whose counters changed whenever they were looked at: nothing is known of them.
    pub(crate) moving: Vec<Period>,
    /// Whether the account is older than the sums: its counter of all it has spent is compared with those of its keys alone.
    pub(crate) older_than_sums: bool,
    /// What differs.
    pub(crate) differences: Vec<WrongCounter>,
}

/// A counter that is not what it is compared with.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WrongCounter {
    /// Whose it is.
    pub(crate) of: SumsSubject,
    /// The key's id.
    pub(crate) name: Option<String>,
    /// The period.
    pub(crate) period: Period,
    /// What it says.
    pub(crate) counter_usd: Usd,
    /// What it should say.
    pub(crate) expected_usd: Usd,
    /// What it is compared with.
    pub(crate) by: Basis,
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
            by: difference.by,
        }
    }
}

/// Compares rows that the journals of this process still have with those of the log, a portion at a time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyJournal {
    /// Of requests that ended on this day or later.
    pub(crate) from: Day,
    /// The first day that is too late.
    pub(crate) until: Day,
    /// Of this account alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// From a place in the journals on, as the answer before has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

question!(VerifyJournal => JournalDays: GET "/v1/log/journal", Viewer; const IS_LONG: bool = true;);

/// Compares them, and brings what the log's home lacks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct FillFromJournal(pub(crate) VerifyJournal);

question!(FillFromJournal => JournalDays: POST "/v1/log/journal/fill", Owner; const IS_LONG: bool = true;);

/// What a portion of the journals has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDays {
    /// Its days, of each account.
    pub(crate) days: Vec<JournalDay>,
    /// Where the next portion begins; null: that was all.
    pub(crate) next: Option<String>,
}

/// What the journals have of a day of an account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalDay {
    /// The account.
    pub(crate) account: String,
    /// The day.
    pub(crate) day: Day,
    /// Rows that were looked for in the log.
    pub(crate) rows: u64,
    /// How many of them it lacked.
    pub(crate) missing: u64,
    /// How many have another charge there.
    pub(crate) differing: u64,
    /// How many of the missing ones were brought.
    pub(crate) brought: u64,
    /// The ids of the first requests that were missing.
    pub(crate) requests: Vec<String>,
}

#[cfg(test)]
mod tests;

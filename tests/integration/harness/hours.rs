//! The hourly buckets of the stability record, and what they have to be by the consumption log.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;

use serde_json::Value as Json;

use super::multiplied::rows_of_day;
use super::wait::{DEADLINE, wait_within};
use super::weir::{ACCOUNT, Weir};

/// Requests, successes, latency, sum and number of the first tokens, output tokens, generation time.
pub(crate) type Counted = [u64; 7];
/// By hour since the epoch and model.
pub(crate) type Hours = BTreeMap<(i64, String), Counted>;

const FIELDS: [&str; 7] = [
    "requests",
    "successes",
    "latency_ms",
    "ttft_ms",
    "ttft_count",
    "output_tokens",
    "generation_ms",
];

/// What a backup holds of log and hours.
pub(crate) struct Kept {
    pub(crate) rows: Vec<Json>,
    /// Of all nodes together.
    pub(crate) hours: Hours,
    pub(crate) nodes: BTreeSet<String>,
}

impl Weir {
    /// What the store holds now, whatever its engine and whether the gateway runs; `None` if it does not answer.
    pub(crate) fn kept(&self) -> Option<Kept> {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("backup.jsonl");
        let made = self.store_command(&["backup", "--out", file.to_str().unwrap()]);
        if !made.status.success() {
            return None;
        }
        let mut kept = Kept {
            rows: Vec::new(),
            hours: Hours::new(),
            nodes: BTreeSet::new(),
        };
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let item: Json = serde_json::from_str(line).unwrap();
            let Some(told) = item.get("stability") else { continue };
            kept.nodes.insert(told["node"].as_str().unwrap().to_owned());
            let hour = told["hour"].as_i64().unwrap();
            for (model, counters) in told["bucket"].as_object().unwrap() {
                let sums = kept.hours.entry((hour, model.clone())).or_default();
                for (sum, field) in sums.iter_mut().zip(FIELDS) {
                    *sum += counters[field].as_u64().unwrap();
                }
            }
        }
        kept.rows = self.logged(&kept.hours)?;
        Some(kept)
    }

    /// The rows of the log; of a gateway that has ended those in its files, of the days that have these hours. `None` if they cannot be
    /// read now.
    fn logged(&self, hours: &Hours) -> Option<Vec<Json>> {
        if UnixStream::connect(self.admin_socket()).is_ok() {
            let words = ["log", "query", "--account", ACCOUNT, "--limit", "1000000"];
            return match self.try_cli_json(&words).ok()? {
                Json::Array(rows) => Some(rows),
                row => Some(vec![row]),
            };
        }
        let days: BTreeSet<i64> = hours.keys().map(|(hour, _)| hour.div_euclid(24)).collect();
        let log = self.folder().join("log");
        let rows = days.into_iter().flat_map(|day| rows_of_day(&log, day));
        Some(rows.map(|row| serde_json::to_value(row).unwrap()).collect())
    }

    /// Waits until the hours are what the rows of the log say, in every counter of every hour and model, and returns them.
    #[track_caller]
    pub(crate) fn stability_equals_log(&self) -> Kept {
        let equal = wait_within(DEADLINE, || {
            self.kept().filter(|kept| kept.hours == expected(&kept.rows))
        });
        equal.unwrap_or_else(|| {
            let kept = self.kept().expect("the store answers");
            panic!("counted {:#?}\nby the log {:#?}", kept.hours, expected(&kept.rows));
        })
    }
}

/// All requests and all successes of a model.
pub(crate) fn totals(hours: &Hours, model: &str) -> (u64, u64) {
    let of_model = hours.iter().filter(|((_, found), _)| found == model);
    of_model.fold((0, 0), |(requests, successes), (_, counted)| {
        (requests + counted[0], successes + counted[1])
    })
}

/// What the rows count: all but those whose clients have left.
fn expected(rows: &[Json]) -> Hours {
    let mut hours = Hours::new();
    for row in rows.iter().filter(|row| row["outcome"] != "client_gone") {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let hour = row["time_ms"].as_i64().unwrap().div_euclid(3_600_000);
        let model = row["model"].as_str().unwrap().to_owned();
        let [requests, successes, latency, ttft, firsts, tokens, generation] = hours.entry((hour, model)).or_default();
        let streamed = row["stream"] == true;
        let first = if streamed { row["ttft_ms"].as_u64() } else { None };
        let good = row["status"].as_u64().unwrap() / 100 == 2;
        *requests += 1;
        *successes += u64::from(good);
        *latency += number("latency_ms");
        if let Some(first) = first {
            *ttft += first;
            *firsts += 1;
        }
        let output = number("output_text") + number("output_reasoning");
        let took = match (streamed, first) {
            (true, Some(first)) => number("latency_ms").saturating_sub(first),
            (true, None) => 0,
            (false, _) => number("latency_ms"),
        };
        if good && output > 0 && took > 0 {
            *tokens += output;
            *generation += took;
        }
    }
    hours
}

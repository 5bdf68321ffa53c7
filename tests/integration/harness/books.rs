//! weir's books: the rows of the consumption log beside the accounts' and keys' counters.

use serde_json::Value as Json;

use super::sample::SampleProvider;
use super::wait::{wait_for, wait_until};
use super::weir::{ACCOUNT, Weir};

/// What [`Weir::fund`] gave the account, in nano-USD.
pub(crate) const FUNDS: i64 = 1_000_000_000_000;

/// The columns of a row whose tokens were read.
pub(crate) const INPUT: [&str; 9] = [
    "input_uncached",
    "input_audio",
    "input_image",
    "cache_read",
    "cache_read_audio",
    "cache_read_image",
    "cache_write_short",
    "cache_write_long",
    "tool_input",
];

/// The books at one moment at which nothing runs and nothing waits to be settled.
pub(crate) struct Books {
    pub(crate) rows: Vec<Json>,
    pub(crate) account: Json,
}

impl Weir {
    /// The account of the tests.
    #[track_caller]
    pub(crate) fn account(&self) -> Json {
        self.cli_json_at_last(&["account", "show", "--id", ACCOUNT])
    }

    /// All rows of the account of the tests.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Json> {
        let words = ["log", "query", "--account", ACCOUNT, "--limit", "1000000"];
        match self.cli_json_at_last(&words) {
            Json::Array(rows) => rows,
            row => vec![row],
        }
    }

    /// One key, as `weir key show` tells it.
    #[track_caller]
    pub(crate) fn key_shown(&self, id: &str) -> Json {
        self.cli_json_at_last(&["key", "show", id])
    }

    /// Waits until nothing runs and `rows` requests have been charged, and checks that everything adds up: the counters are
    /// the sum of the rows, and no request has two.
    #[track_caller]
    pub(crate) fn books(&self, rows: usize) -> Books {
        self.books_with(rows, FUNDS)
    }

    /// The books when nothing is charged any more and the rows are what is waited for, however many they are. What a killed process
    /// has left of a lease may be held still, and count as running.
    #[track_caller]
    pub(crate) fn books_at_rest(&self, are_all: impl Fn(&[Json]) -> bool) -> Books {
        let figures = |account: &Json| [&account["spent_nano_usd"], &account["balance_nano_usd"]].map(Json::as_i64);
        let books = wait_for("the books to be closed", || {
            let (account, rows) = (self.account(), self.rows());
            let is_still = are_all(&rows) && figures(&self.account()) == figures(&account);
            is_still.then_some(Books { rows, account })
        });
        books.assert_add_up(self, FUNDS);
        books
    }

    /// The same of an account that was given `funds` in all.
    #[track_caller]
    fn books_with(&self, rows: usize, funds: i64) -> Books {
        let books = wait_for("the books to be closed", || {
            let account = self.account();
            // A row may be read before it is settled.
            let at_rest = account["running"] == 0
                && account["held_nano_usd"] == 0
                && self.figure("weir_settlements_unacknowledged") == 0;
            let books = Books {
                rows: if at_rest { self.rows() } else { Vec::new() },
                account,
            };
            // Nothing was charged while the rows were read.
            let is_still = at_rest && self.account() == books.account;
            (is_still && books.rows.len() >= rows).then_some(books)
        });
        assert_eq!(books.rows.len(), rows, "rows");
        books.assert_add_up(self, funds);
        books
    }
}

impl Weir {
    /// The books as [`Weir::books`] has them, when every answer of the provider has its row: each charges what the provider
    /// billed. The account was credited `credits` nano-USD besides [`FUNDS`].
    #[track_caller]
    pub(crate) fn books_as_billed(&self, provider: &SampleProvider, credits: i64) -> Books {
        self.books_beside_failures(provider, credits, 0)
    }

    /// The same where the provider has refused `failed` requests for good: they have rows, and cost nothing.
    #[track_caller]
    pub(crate) fn books_beside_failures(&self, provider: &SampleProvider, credits: i64, failed: usize) -> Books {
        wait_until("the end of what runs", || self.account()["running"] == 0);
        let bills = provider.bills();
        let mut bills: Vec<(u64, u64)> = bills.iter().filter(|bill| is_success(bill)).map(billed).collect();
        let books = self.books_with(bills.len() + failed, FUNDS + credits);
        let (served, refused): (Vec<&Json>, Vec<&Json>) = books.rows.iter().partition(|row| is_success(row));
        assert!(served.iter().all(|row| row["usage_source"] == "reported"));
        assert!(refused.iter().all(|row| cost(row) == 0));
        let mut rows: Vec<(u64, u64)> = served.into_iter().map(used).collect();
        rows.sort_unstable();
        bills.sort_unstable();
        assert_eq!(rows, bills, "what is charged, and what was billed");
        books
    }
}

fn is_success(line: &Json) -> bool {
    line["status"].as_u64().is_some_and(|status| status < 400)
}

impl Books {
    /// The sum of all charges, in nano-USD.
    pub(crate) fn charged(&self) -> i64 {
        self.rows.iter().map(cost).sum()
    }

    #[track_caller]
    fn assert_add_up(&self, weir: &Weir, funds: i64) {
        let charged = self.charged();
        assert_eq!(self.account["spent_nano_usd"], charged, "the account's counter");
        assert_eq!(self.account["balance_nano_usd"], funds - charged, "the balance");
        let mut ids: Vec<&str> = self
            .rows
            .iter()
            .map(|row| row["request_id"].as_str().unwrap())
            .collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "a request has two rows");
        let mut keys: Vec<&str> = self.rows.iter().map(|row| row["key_id"].as_str().unwrap()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let of_key = self.rows.iter().filter(|row| row["key_id"] == key);
            let spent: i64 = of_key.map(cost).sum();
            assert_eq!(weir.key_shown(key)["spent_nano_usd"], spent, "the counter of {key}");
        }
        self.assert_sums(weir);
    }

    /// The daily sums are those of the rows.
    #[track_caller]
    fn assert_sums(&self, weir: &Weir) {
        let days = self
            .rows
            .iter()
            .map(|row| row["time"].as_str().unwrap()[..10].to_owned());
        let days: std::collections::BTreeSet<String> = days.collect();
        for from in days {
            let until = from
                .parse::<jiff::civil::Date>()
                .unwrap()
                .tomorrow()
                .unwrap()
                .to_string();
            let words = [
                "log",
                "verify",
                "--account",
                ACCOUNT,
                "--from",
                &from,
                "--until",
                &until,
            ];
            let mut said = String::new();
            let differs = wait_for("the daily sums to be compared", || {
                let done = weir.cli(&words, &[]);
                said = [done.stdout, done.stderr]
                    .map(|text| String::from_utf8_lossy(&text).into_owned())
                    .concat();
                // A busy machine may leave the store unanswered for a moment.
                let differs = ["differ from their rows", "counters differ"];
                let differs = differs.iter().any(|what| said.contains(what));
                (done.status.success() || differs).then_some(differs)
            });
            assert!(!differs, "{said}");
        }
    }
}

/// What a row charges, in nano-USD.
pub(crate) fn cost(row: &Json) -> i64 {
    row["cost_nano_usd"].as_i64().unwrap()
}

fn tokens(row: &Json, names: &[&str]) -> u64 {
    names.iter().map(|name| row[*name].as_u64().unwrap_or(0)).sum()
}

/// All input of a row, and all output.
pub(super) fn used(row: &Json) -> (u64, u64) {
    (tokens(row, &INPUT), tokens(row, &["output_text", "output_reasoning"]))
}

/// The same of a line of the provider's ledger.
pub(super) fn billed(line: &Json) -> (u64, u64) {
    let input = ["input_tokens", "cache_read_tokens", "cache_write_tokens"];
    (tokens(line, &input), tokens(line, &["output_tokens"]))
}

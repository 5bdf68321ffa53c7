//! weir's books: the rows of the consumption log beside the accounts' and keys' counters.

use serde_json::Value as Json;

use super::wait::wait_for;
use super::weir::{ACCOUNT, Weir};

/// What [`Weir::fund`] gave the account, in nano-USD.
pub(crate) const FUNDS: i64 = 1_000_000_000_000;

/// The books at one moment at which nothing runs and nothing waits to be settled.
pub(crate) struct Books {
    pub(crate) rows: Vec<Json>,
    pub(crate) account: Json,
}

impl Weir {
    /// The account of the tests.
    #[track_caller]
    pub(crate) fn account(&self) -> Json {
        self.cli_json(&["account", "show", "--id", ACCOUNT])
    }

    /// All rows of the account of the tests.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Json> {
        let words = ["log", "query", "--account", ACCOUNT, "--limit", "1000000"];
        match self.cli_json(&words) {
            Json::Array(rows) => rows,
            row => vec![row],
        }
    }

    /// One key, as `weir key show` tells it.
    #[track_caller]
    pub(crate) fn key_shown(&self, id: &str) -> Json {
        self.cli_json(&["key", "show", id])
    }

    /// Waits until nothing runs and `rows` requests have been charged, and checks that everything adds up: the counters are
    /// the sum of the rows, and no request has two.
    #[track_caller]
    pub(crate) fn books(&self, rows: usize) -> Books {
        let books = wait_for("the books to be closed", || {
            let account = self.account();
            let at_rest = account["running"] == 0 && account["held_nano_usd"] == 0;
            let books = Books {
                rows: if at_rest { self.rows() } else { Vec::new() },
                account,
            };
            // Nothing was charged while the rows were read.
            let is_still = at_rest && self.account() == books.account;
            (is_still && books.rows.len() >= rows).then_some(books)
        });
        assert_eq!(books.rows.len(), rows, "rows");
        books.assert_add_up(self);
        books
    }
}

impl Books {
    /// The sum of all charges, in nano-USD.
    pub(crate) fn charged(&self) -> i64 {
        self.rows.iter().map(cost).sum()
    }

    #[track_caller]
    fn assert_add_up(&self, weir: &Weir) {
        let charged = self.charged();
        assert_eq!(self.account["spent_nano_usd"], charged, "the account's counter");
        assert_eq!(self.account["balance_nano_usd"], FUNDS - charged, "the balance");
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
    }
}

/// What a row charges, in nano-USD.
pub(crate) fn cost(row: &Json) -> i64 {
    row["cost_nano_usd"].as_i64().unwrap()
}

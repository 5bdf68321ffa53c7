//! The lines of the table that `tests/hostile/run` prints, and what has failed.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tells what has come of a case, where somebody collects it: `WEIR_HOSTILE_TABLE` names the file.
pub(super) fn came(family: &str, case: &str, count: usize, what: &str) {
    let Some(path) = std::env::var_os("WEIR_HOSTILE_TABLE") else {
        return;
    };
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    // One write each: tests run at the same time.
    file.write_all(format!("{family}\t{case}\t{count}\t{what}\n").as_bytes())
        .unwrap();
}

/// The cases of a family, one after the other: each is tried, whatever came of those before.
pub(super) struct Tried {
    family: &'static str,
    failed: Vec<String>,
}

impl Tried {
    /// None so far.
    pub(super) fn new(family: &'static str) -> Tried {
        Tried {
            family,
            failed: Vec::new(),
        }
    }

    /// Tries a case, which says how often it was tried.
    pub(super) fn case(&mut self, name: &str, told: &str, attempt: impl FnOnce() -> usize) {
        match catch_unwind(AssertUnwindSafe(attempt)) {
            Ok(count) => came(self.family, name, count, told),
            Err(_) => {
                came(self.family, name, 0, "FAILED");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Fails if one of them has failed.
    #[track_caller]
    pub(super) fn end(self) {
        assert!(
            self.failed.is_empty(),
            "failed: {:?}; what failed is told above",
            self.failed
        );
    }
}

//! A store with many keys and rows, made of the few that a gateway has: its backup, with copies of what is in it, put back, and copies
//! of its first row in the log's files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use weir::parts::log::{Batch, LogBackend, LogFiles, LogFilter, LogPageQuery, NumberedRow, PAGE_ROWS_MAX, Row, Sink};
use weir::parts::{KeyId, NodeId};

use super::weir::Weir;

const DAY_MS: i64 = 24 * 3600 * 1000;
/// The most copies of a row that are written at once.
const FILE_ROWS: usize = 50_000;

/// A backup that is being written.
struct Backup {
    to: BufWriter<File>,
    hash: Sha256,
    items: u64,
}

impl Backup {
    fn line(&mut self, line: &str) {
        self.hash.update(line);
        self.hash.update("\n");
        writeln!(self.to, "{line}").unwrap();
    }

    fn item(&mut self, item: &Json) {
        self.items += 1;
        self.line(&item.to_string());
    }

    fn end(mut self) {
        let digest = self.hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let end = serde_json::json!({ "end": { "items": self.items, "sha256": digest } });
        writeln!(self.to, "{end}").unwrap();
        self.to.flush().unwrap();
    }
}

/// The sums of some requests, as those of `count` such requests.
fn times(sums: &Json, count: u64, requests: u64) -> Json {
    match sums {
        Json::Object(fields) => {
            let scaled = fields
                .iter()
                .map(|(name, value)| (name.clone(), times(value, count, requests)));
            Json::Object(scaled.collect())
        }
        Json::Number(number) => {
            let product = u128::from(number.as_u64().unwrap()) * u128::from(count) / u128::from(requests);
            // A digest has 48 bits, and nothing else is that large.
            Json::from(u64::try_from(product % (1 << 48)).unwrap())
        }
        other => other.clone(),
    }
}

fn key_id(number: usize) -> String {
    format!("key_{number:016}")
}

/// Writes copies of a row to the log's files, those of a day at once.
fn write_rows(log: &Path, row: &Row, (keys, days): (usize, &BTreeMap<usize, Vec<usize>>)) {
    let files = LogFiles::open(log, Duration::from_secs(3600), usize::MAX).unwrap();
    let node = NodeId::parse("node_0123456789abcdef").unwrap();
    let mut after = 0;
    for (days_ago, numbers) in days.iter().rev() {
        for some in numbers.chunks(FILE_ROWS) {
            let copies = (after + 1..).zip(some).map(|(number, copy)| {
                let mut row = row.clone();
                row.request_id = format!("copy-{copy}").into();
                row.time_ms -= i64::try_from(*days_ago).unwrap() * DAY_MS;
                if keys > 0 {
                    row.key_id = KeyId::parse(&key_id(copy % keys)).unwrap();
                }
                Arc::new(NumberedRow { number, row })
            });
            let rows: Vec<_> = copies.collect();
            let upto = rows.last().unwrap().number + 1;
            let batch = Batch {
                node: node.clone(),
                after,
                upto,
                rows,
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(files.append(&batch)).unwrap();
            after = upto;
        }
    }
}

/// The rows that the log's files have of a day.
pub(super) fn rows_of_day(log: &Path, day: i64) -> Vec<Row> {
    let files = LogFiles::open(log, Duration::from_secs(3600), usize::MAX).unwrap();
    let filter = LogFilter::between(day * DAY_MS, (day + 1) * DAY_MS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut rows, mut ask) = (Vec::new(), LogPageQuery::new(filter, day, PAGE_ROWS_MAX));
    loop {
        let page = runtime.block_on(files.page(&ask)).unwrap();
        rows.extend(page.rows);
        match page.next {
            Some(next) => ask.after = next,
            None => return rows,
        }
    }
}

/// Puts the sums of the copies of the first row into a backup that has these items; answers with the day of that row.
fn put_sums(backup: &mut Backup, items: &[Json], keys: usize, days: &BTreeMap<usize, Vec<usize>>) -> i64 {
    let of_subject = |subject: &str| {
        let sums = items.iter().filter_map(|item| item.get("day_sums"));
        let mut found = sums.filter(|sums| sums["subject"].as_str().unwrap().starts_with(subject));
        found.next().cloned()
    };
    let of_row = of_subject("k:").unwrap();
    let day = of_row["day"].as_i64().unwrap();
    let own_key = of_row["subject"].as_str().unwrap().to_owned();
    for (days_ago, numbers) in days {
        let mut subjects = BTreeMap::<String, u64>::new();
        for number in numbers {
            let of_key = match keys {
                0 => own_key.clone(),
                _ => format!("k:{}", key_id(number % keys)),
            };
            *subjects.entry(of_key).or_default() += 1;
        }
        for whole in ["a", "o"].iter().filter(|subject| of_subject(subject).is_some()) {
            subjects.insert((*whole).to_owned(), numbers.len() as u64);
        }
        for (subject, count) in subjects {
            let mut sums = of_row.clone();
            sums["subject"] = subject.into();
            sums["day"] = (day - i64::try_from(*days_ago).unwrap()).into();
            for of_model in sums["models"].as_object_mut().unwrap().values_mut() {
                // They may be those of several rows like this one.
                let requests = of_model["requests"].as_u64().unwrap();
                *of_model = times(of_model, count, requests);
            }
            backup.item(&serde_json::json!({ "day_sums": sums }));
        }
    }
    day
}

impl Weir {
    /// Ends the gateway, puts copies of its first key into its store and copies of its first row into its log, and starts it again.
    /// `name` gives the key of a number its name. The rows are those keys' in turn, or else the first key's; `days_ago` says when one
    /// ended.
    pub(crate) fn multiply(
        &mut self,
        (keys, name): (usize, impl Fn(usize) -> String),
        (rows, days_ago): (usize, impl Fn(usize) -> usize),
    ) {
        self.process().signal("TERM");
        assert!(self.process().wait_ended().success());
        let path = |name: &str| self.folder().join(name).to_str().unwrap().to_owned();
        let (few, many) = (path("few.jsonl"), path("many.jsonl"));
        let made = self.store_command(&["backup", "--out", &few]);
        assert!(made.status.success(), "{made:?}");
        let text = std::fs::read_to_string(&few).unwrap();
        let mut backup = Backup {
            to: BufWriter::new(File::create(&many).unwrap()),
            hash: Sha256::new(),
            items: 0,
        };
        let lines: Vec<&str> = text.lines().collect();
        let (_, items) = lines.split_last().unwrap();
        let (header, items) = items.split_first().unwrap();
        backup.line(header);
        let items: Vec<Json> = items.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut key = items.iter().find(|item| item.get("key").is_some()).unwrap().clone();
        for item in &items {
            backup.item(item);
        }
        for number in 0..keys {
            let fields = &mut key["key"];
            fields["record"]["id"] = key_id(number).into();
            fields["record"]["name"] = name(number).into();
            fields["digest"] = digest_like(&fields["digest"], number);
            backup.item(&key);
        }
        let mut days = BTreeMap::<usize, Vec<usize>>::new();
        for number in 0..rows {
            days.entry(days_ago(number)).or_default().push(number);
        }
        let day = put_sums(&mut backup, &items, keys, &days);
        let row = rows_of_day(&self.folder().join("log"), day).swap_remove(0);
        backup.end();
        write_rows(&self.folder().join("log"), &row, (keys, &days));
        std::fs::rename(self.folder().join("store"), self.folder().join("few")).unwrap();
        std::fs::rename(self.folder().join("journal"), self.folder().join("few-journal")).unwrap();
        let restored = self.store_command(&["restore", "--from", &many]);
        assert!(restored.status.success(), "{restored:?}");
        std::fs::remove_file(&many).unwrap();
        self.kill_and_restart();
    }
}

/// A digest in the form of another one, of no key that there is.
fn digest_like(other: &Json, number: usize) -> Json {
    match other {
        Json::String(text) => {
            let digest = format!("{number:0width$x}", width = text.len());
            Json::String(digest)
        }
        other => panic!("a digest is text: {other}"),
    }
}

//! What a log in files costs to keep and to read: bytes a row, the last day and the last month of an account, a full export,
//! removal of a day, and a start with it.
//!
//! `cargo bench --bench log [-- --rows 10000000 --days 30]`. Rows are made from a seed and written by weir's own
//! writer, an hour at a time; days are merged as weir merges them. Exports and the start are those of `weir serve` and
//! `weir log export`, which this very program becomes where it is called so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a bench reports on stdout, reads the clock, and stops at once when its surroundings are not as expected"
)]

mod generator;
mod server;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    ops::RangeInclusive,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use clap::Parser;
use weir::parts::log::{Batch, LogBackend, LogFiles, LogFilter, LogPageQuery, PAGE_ROWS_MAX, Sink};

use crate::{generator::Generator, server::Server};

/// The allocator of the weir binary.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// As often as a question is asked; the median counts.
const ASKED: usize = 5;

#[derive(Parser)]
struct Args {
    /// The number of rows
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// The number of days, ending now, over which the rows are spread
    #[arg(long, default_value_t = 3)]
    days: i64,
    /// An option that cargo bench passes. It has no effect
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == server::AS_WEIR) {
        let words = std::iter::once(OsString::from("weir")).chain(args.into_iter().skip(2));
        let command = weir::parse(words).expect("words that weir understands");
        return match weir::run(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("weir: {error}");
                ExitCode::FAILURE
            }
        };
    }
    measure(&Args::parse());
    ExitCode::SUCCESS
}

fn measure(args: &Args) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let empty = Server::start(folder.path(), &folder.path().join("empty")).took;
    let files = LogFiles::open(&log, Duration::from_secs(3600), usize::MAX).expect("a folder for the log");
    let now_ms = now_ms();
    let generator = Generator::new(args.rows, args.days, now_ms);
    let ([busiest, middle], written) = runtime.block_on(write(&files, generator));
    let began = Instant::now();
    files.housekeep(now_ms, 180).expect("files that can be merged");
    let merged = began.elapsed();
    // Files that were merged go a minute later.
    files
        .housekeep(now_ms + MINUTE_MS, 180)
        .expect("files that can be removed");
    let rows = args.rows as f64;
    let bytes = size(&log);
    println!("## The log of {} rows over {} days\n", args.rows, args.days);
    println!("| what | measured |\n|---|---:|");
    row("bytes a row", &format!("{:.1}", bytes as f64 / rows));
    row(
        "written, rows a second",
        &format!("{:.0}", rows / written.as_secs_f64()),
    );
    row("merged, rows a second", &format!("{:.0}", rows / merged.as_secs_f64()));
    for (what, account) in [("the busiest account", busiest), ("the account in the middle", middle)] {
        let day = LogFilter {
            account: Some(account.clone()),
            ..LogFilter::between(now_ms - DAY_MS, now_ms)
        };
        let (took, found) = runtime.block_on(asked(&log, &day));
        row(&format!("the last 24 hours of {what}: {found} rows"), &millis(took));
        let days = (now_ms - args.days * DAY_MS).div_euclid(DAY_MS)..=now_ms.div_euclid(DAY_MS);
        let (took, found) = runtime.block_on(counted(&log, &account, days));
        row(&format!("all days, by day, of {what}: {found} rows"), &millis(took));
    }
    let server = Server::start(folder.path(), &log);
    row("a start with no log", &millis(empty));
    row("a start with it", &millis(server.took));
    for form in ["csv", "parquet", "jsonl"] {
        let (took, bytes) = server.export(form);
        let speed = rows / took.as_secs_f64();
        row(
            &format!("a full export as {form}: rows a second"),
            &format!("{speed:.0} ({:.0} MB)", bytes as f64 / 1e6),
        );
    }
    row(
        "most memory of weir meanwhile",
        &format!("{:.0} MB", server.peak_bytes() as f64 / 1e6),
    );
    drop(server);
    let days = fs::read_dir(&log).expect("the log's folder").count();
    let began = Instant::now();
    files
        .housekeep(now_ms, args.days - 2)
        .expect("a day that can be removed");
    row("removal of a day", &millis(began.elapsed()));
    assert!(
        fs::read_dir(&log).expect("the log's folder").count() < days,
        "a day is gone"
    );
}

/// Writes all rows, an hour at a time; answers with the account that has most rows and the one in the middle of all, and how long the
/// writer took.
async fn write(files: &LogFiles, mut generator: Generator) -> ([String; 2], Duration) {
    let node = generator::node();
    let (mut after, mut took, mut counts) = (0, Duration::ZERO, BTreeMap::<String, u64>::new());
    while let Some(rows) = generator.hour() {
        for row in &rows {
            *counts.entry(row.row.account.to_string()).or_default() += 1;
        }
        let upto = rows.last().map_or(after, |last| last.number + 1);
        let batch = Batch {
            node: node.clone(),
            after,
            upto,
            rows: rows.into_iter().map(Arc::new).collect(),
        };
        let began = Instant::now();
        files.append(&batch).await.expect("rows that can be written");
        took += began.elapsed();
        after = upto;
    }
    let accounts = counts.into_iter().map(|(account, count)| (count, account));
    let mut accounts: Vec<(u64, String)> = accounts.collect();
    accounts.sort();
    let place = |place: usize| accounts[place].1.clone();
    ([place(accounts.len() - 1), place(accounts.len() / 2)], took)
}

/// Asks for what the rows of an account come to by day, as `weir log verify` reads them, some times; how long that took, and how many
/// rows there were.
async fn counted(log: &Path, account: &str, days: RangeInclusive<i64>) -> (Duration, usize) {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..ASKED {
        let began = Instant::now();
        let files = LogFiles::open(log, Duration::from_secs(3600), usize::MAX).expect("a folder for the log");
        let mut cost_by_day = BTreeMap::<i64, i64>::new();
        for day in days.clone() {
            let mut ask = LogPageQuery::for_day(account, day, PAGE_ROWS_MAX);
            loop {
                let page = files.page(&ask).await.expect("rows of a day");
                found += page.rows.len();
                let costs = page.rows.iter().map(|row| row.cost_nano_usd.nanos());
                *cost_by_day.entry(day).or_default() += costs.sum::<i64>();
                let Some(next) = page.next else { break };
                ask.after = next;
            }
        }
        assert!(cost_by_day.values().sum::<i64>() > 0);
        times.push(began.elapsed());
    }
    times.sort();
    (times[ASKED / 2], found / ASKED)
}

/// Asks for all rows that a filter takes, some times; how long that took, and how many rows there were.
async fn asked(log: &Path, filter: &LogFilter) -> (Duration, usize) {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..ASKED {
        let began = Instant::now();
        let files = LogFiles::open(log, Duration::from_secs(3600), usize::MAX).expect("a folder for the log");
        found = 0;
        for day in filter.since_ms.div_euclid(DAY_MS)..=(filter.until_ms - 1).div_euclid(DAY_MS) {
            let mut ask = LogPageQuery::new(filter.clone(), day, PAGE_ROWS_MAX);
            loop {
                let page = files.page(&ask).await.expect("a page");
                found += page.rows.len();
                let Some(next) = page.next else { break };
                ask.after = next;
            }
        }
        times.push(began.elapsed());
    }
    times.sort();
    (times[ASKED / 2], found)
}

fn row(what: &str, measured: &str) {
    println!("| {what} | {measured} |");
}

fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock behind 1970").as_millis() as i64
}

/// Of all files below a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

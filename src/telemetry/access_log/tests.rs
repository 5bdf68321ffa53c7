//! The access log against files and against a target that does not move.

use super::*;
use crate::domain::wire::usage::Usage;

const WAIT_MAX: Duration = Duration::from_secs(10);

fn record(id: &str) -> RequestRecord {
    RequestRecord {
        request_id: id.into(),
        outcome: "ok",
        status: 200,
        ..RequestRecord::default()
    }
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).expect("the log");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

fn ids(path: &Path) -> Vec<String> {
    lines(path)
        .iter()
        .map(|line| line["request_id"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn a_line_says_what_is_known_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.jsonl");
    let log = AccessLog::open(&AccessLogTarget::File(path.clone()), 16).expect("opens");
    log.write(&mut RequestRecord {
        time_unix_ms: 1_764_633_600_007,
        model_asked: Some("line\nbreak".into()),
        protocol: Some("messages"),
        usage: Some(Usage {
            input_uncached: 12,
            output_text: 3,
            ..Usage::default()
        }),
        client_version: 1,
        ..record("req_1")
    });
    assert!(log.close(WAIT_MAX));
    let expected = concat!(
        r#"{"time":"2025-12-02T00:00:00.007Z","request_id":"req_1","protocol":"messages","model_asked":"line\nbreak","#,
        r#""status":200,"outcome":"ok","stream":false,"latency_ms":0,"attempts":0,"request_bytes":0,"response_bytes":0,"#,
        r#""usage":{"input_uncached":12,"output_text":3},"http":1}"#,
        "\n"
    );
    assert_eq!(std::fs::read_to_string(&path).expect("the log"), expected);
}

#[test]
fn closing_writes_everything_queued_and_appends_to_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = AccessLogTarget::File(folder.path().join("access.jsonl"));
    let AccessLogTarget::File(path) = &target else {
        unreachable!()
    };
    for start in [0, 500] {
        let log = AccessLog::open(&target, 1000).expect("opens");
        for number in start..start + 500 {
            log.write(&mut record(&number.to_string()));
        }
        assert!(log.close(WAIT_MAX));
        assert!(log.close(WAIT_MAX), "closing twice is harmless");
        assert_eq!(log.dropped(), 0);
        log.write(&mut record("late"));
        assert_eq!(log.dropped(), 1);
    }
    let expected: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(ids(path), expected);
}

#[test]
fn reopening_moves_on_to_a_new_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.jsonl");
    let rotated = folder.path().join("access.jsonl.1");
    let log = AccessLog::open(&AccessLogTarget::File(path.clone()), 16).expect("opens");
    log.write(&mut record("before"));
    while std::fs::metadata(&path).expect("there").len() == 0 {
        std::thread::yield_now();
    }
    std::fs::rename(&path, &rotated).expect("renamed");
    log.reopen();
    while !path.exists() {
        std::thread::yield_now();
    }
    log.write(&mut record("after"));
    assert!(log.close(WAIT_MAX));
    assert_eq!(
        (ids(&rotated), ids(&path)),
        (vec!["before".to_owned()], vec!["after".to_owned()])
    );
}

#[test]
fn a_renamed_file_is_left_for_a_new_one_without_a_word_from_anybody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.jsonl");
    let log = AccessLog::open(&AccessLogTarget::File(path.clone()), 16).expect("opens");
    let mut lines = 0;
    let mut kept = 0;
    for round in 0..3 {
        let rotated = folder.path().join(format!("access.jsonl.{round}"));
        let written = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
        while !written(&path) {
            log.write(&mut record("line"));
            lines += 1;
            std::thread::yield_now();
        }
        std::fs::rename(&path, &rotated).expect("renamed");
    }
    assert!(log.close(WAIT_MAX));
    for file in std::fs::read_dir(folder.path()).expect("the folder").flatten() {
        kept += ids(&file.path()).len() as u64;
    }
    // Lines come here as fast as they can: what the queue had no room for is counted.
    assert_eq!(kept + log.dropped(), lines);
}

#[test]
fn a_full_disk_costs_lines_and_no_request_waits_for_it() {
    const LINES: u64 = 2_000;
    let log = AccessLog::open(&AccessLogTarget::File("/dev/full".into()), 4_000).expect("opens");
    for count in 0..LINES {
        log.write(&mut record(&count.to_string()));
    }
    assert!(log.close(WAIT_MAX));
    assert_eq!(log.dropped(), LINES);
}

#[test]
fn a_file_that_cannot_be_made_anew_is_written_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("logs");
    std::fs::create_dir(&inner).expect("made");
    let log = AccessLog::open(&AccessLogTarget::File(inner.join("access.jsonl")), 16).expect("opens");
    let moved = folder.path().join("old");
    std::fs::rename(&inner, &moved).expect("renamed");
    log.reopen();
    log.write(&mut record("kept"));
    assert!(log.close(WAIT_MAX));
    assert_eq!(
        (ids(&moved.join("access.jsonl")), log.dropped()),
        (vec!["kept".to_owned()], 0)
    );
}

/// A FIFO at that path.
fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
}

#[test]
fn a_fifo_without_a_reader_holds_up_neither_the_start_nor_a_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.fifo");
    fifo(&path);
    let (opened, open) = std::sync::mpsc::channel();
    let target = AccessLogTarget::File(path.clone());
    // Were it waited for, this thread would never come back.
    std::thread::spawn(move || opened.send(AccessLog::open(&target, 4_000)));
    let log = open.recv_timeout(WAIT_MAX).expect("not waited for").expect("opens");
    // More than the queue, the writer and a FIFO hold.
    const LINES: u64 = 8_000;
    for count in 0..LINES {
        log.write(&mut record(&count.to_string()));
    }
    assert!(!log.close(Duration::ZERO), "what hangs is not waited for");
    let dropped = log.dropped();
    assert!((1..=4_000).contains(&dropped), "{dropped}");
    // A reader that comes late gets what was kept, in whole lines.
    let reader = std::fs::File::open(&path).expect("a reader");
    let (taken, take) = std::sync::mpsc::channel();
    std::thread::spawn(move || io::BufRead::lines(io::BufReader::new(reader)).try_for_each(|line| taken.send(line)));
    for _ in dropped..LINES {
        let line = take.recv_timeout(WAIT_MAX).expect("a line").expect("read");
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
    assert!(log.close(WAIT_MAX));
    assert_eq!(log.dropped(), dropped);
}

#[test]
fn off_costs_nothing_and_a_bad_path_is_said_at_start() {
    let off = AccessLog::open(&AccessLogTarget::Off, 1).expect("opens");
    off.write(&mut record("nowhere"));
    off.reopen();
    assert_eq!((off.dropped(), off.close(Duration::ZERO)), (0, true));

    let nowhere = AccessLogTarget::File(PathBuf::from("/nonexistent/weir/access.jsonl"));
    let error = AccessLog::open(&nowhere, 1).expect_err("no such folder").to_string();
    assert!(error.contains("/nonexistent/weir/access.jsonl: "), "{error}");
}

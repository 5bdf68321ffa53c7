//! Room is found before it is needed, and what was promised is kept.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;
use crate::domain::{
    ledger::{
        NodeId, Settlement,
        consumption::Part,
        lease::LeaseId,
        settlement_after_crash,
        tag::{TAGS_MAX, Tag},
    },
    money::price::PARTS_MAX,
    wire::usage::RunKind,
};

/// A disk that is full while this is true.
#[derive(Debug)]
struct Full(Arc<AtomicBool>);

impl Disk for Full {
    fn allocate(&self, file: &fs::File, bytes: u64) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.allocate(file, bytes)
    }
}

pub(super) fn on_a_disk(path: &Path) -> (Opened, Arc<AtomicBool>) {
    let full = Arc::new(AtomicBool::new(false));
    let disk = Arc::new(Full(Arc::clone(&full)));
    (Journal::open_with(&settings(path), disk).unwrap(), full)
}

#[test]
fn a_full_disk_is_found_at_admission_and_what_was_promised_is_written() {
    let folder = scratch();
    let (opened, full) = on_a_disk(folder.path());
    let journal = &opened.journal;
    full.store(true, Ordering::Relaxed);
    let mut rooms: Vec<Reservation> = std::iter::from_fn(|| journal.reserve(STEP_BYTES_MAX).ok()).collect();
    assert!((1..=4).contains(&rooms.len()), "{}", rooms.len());
    let refused = journal.reserve(STEP_BYTES_MAX).unwrap_err().to_string();
    assert!(
        refused.contains("no room") && refused.contains("free some space"),
        "{refused}"
    );
    let mut written = 0;
    for room in &mut rooms {
        while room.left() >= STEP_BYTES_MAX / 2 {
            journal.append_step("acme", settle("r"), 0, room).unwrap();
            written += 1;
        }
    }
    assert_eq!(numbers(journal, "acme").len(), written);
    let mut none = journal.reserve(0).unwrap();
    while journal.append_step("acme", Change::Suspend, 0, &mut none).is_ok() {}
    assert!(
        journal
            .append(&Record::Checkpoint(Box::new(checkpoint("r", 0))), &mut rooms[0])
            .is_err()
    );
    let left = rooms[0].left();
    assert!(left > 0, "a checkpoint takes nothing that is promised to a settlement");
    drop(rooms);

    full.store(false, Ordering::Relaxed);
    while journal.reserve(REQUEST_BYTES).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_real_disk_fills_up() {
    let folder = scratch();
    let path = folder.path().join("disk");
    fs::create_dir(&path).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&path)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        println!("skipped: no tmpfs can be mounted here");
        return;
    }
    let opened = open(&path.join("journal"));
    let mut rooms: Vec<Reservation> = std::iter::from_fn(|| opened.journal.reserve(STEP_BYTES_MAX).ok()).collect();
    for room in &mut rooms {
        opened.journal.append_step("acme", settle("r"), 0, room).unwrap();
    }
    assert_eq!(numbers(&opened.journal, "acme").len(), rooms.len());
    assert!(rooms.len() > 4);
    drop((rooms, opened));
    std::process::Command::new("umount").arg(&path).output().unwrap();
}

fn admitted_with_texts(text: &str) -> Admitted {
    let mut admitted = admitted(text);
    for field in [
        &mut admitted.request.account,
        &mut admitted.request.protocol,
        &mut admitted.request.model_asked,
        &mut admitted.request.model,
        &mut admitted.provider,
        &mut admitted.price_version,
    ] {
        *field = text.into();
    }
    let tag = |number: usize| Tag::parse(&format!("{}={number}{}", "n".repeat(32), "v".repeat(63)));
    admitted.request.hold = Some(NanoUsd::from_nanos(i64::MAX));
    admitted.request.tags = (0..TAGS_MAX).filter_map(tag).collect();
    admitted
}

fn settled_with_texts(admitted: Admitted, text: &str) -> Settlement {
    let mut settlement = settlement_after_crash(admitted, None);
    let row = settlement.row.as_mut().unwrap();
    row.outcome = text.into();
    row.modifiers = Modifiers {
        service_tier: Some(text.into()),
        speed: Some(text.into()),
        geo: Some(text.into()),
    };
    settlement
}

#[test]
fn the_largest_records_of_a_request_fit_into_its_reservation() {
    let text = || "x".repeat(128);
    let most = 1 << 53;
    let admitted = Admitted {
        input_tokens: most,
        input_cost: NanoUsd::from_nanos(i64::MAX),
        latency_ms: u64::MAX,
        tokens_estimated: u64::MAX,
        lease: Some(LeaseId {
            holder: NodeId::none(),
            number: u64::MAX,
        }),
        ..admitted_with_texts(&text())
    };
    let frame = |record: &Record| frame::HEAD as u64 + serde_json::to_vec(record).unwrap().len() as u64;
    assert!(frame(&Record::Admit(Box::new(admitted.clone()))) <= ADMIT_BYTES_MAX);
    let mut settlement = settled_with_texts(admitted, &text());
    settlement.tokens_used = u64::MAX;
    let row = settlement.row.as_mut().unwrap();
    row.usage = Usage::of_parts([most; Usage::NAMES.len()]);
    (row.time_ms, row.admitted_ms, row.status) = (i64::MAX, i64::MAX, u16::MAX);
    (row.cost_nano_usd, row.latency_ms, row.ttft_ms) = (NanoUsd::from_nanos(i64::MAX), u64::MAX, Some(u64::MAX));
    row.attempts = Some(u32::MAX);
    let step = Step {
        seq: u64::MAX,
        change: Change::Settle(Box::new(settlement)),
    };
    assert!(
        frame(&Record::Step {
            account: text().into(),
            step
        }) <= STEP_BYTES_MAX
    );
}

#[test]
fn the_parts_of_a_request_fit_into_its_reservation() {
    let text = || "x".repeat(40);
    let usage = Usage {
        input_uncached: 9_999_999_999,
        cache_read: 9_999_999_999,
        cache_write_short: 9_999_999_999,
        cache_write_long: 9_999_999_999,
        output_text: 9_999_999_999,
        output_reasoning: 9_999_999_999,
        web_searches: 10_000,
        web_fetches: 10_000,
        ..Usage::default()
    };
    let part = Part {
        run: RunKind::Compaction,
        model: text(),
        usage,
        priced_as: Some(text()),
        price_version: Some(text()),
        above_input_tokens: 9_999_999_999,
        cost_nano_usd: NanoUsd::from_nanos(i64::MAX),
    };
    let mut settlement = settled_with_texts(admitted_with_texts(&text()), &text());
    let row = settlement.row.as_mut().unwrap();
    row.usage = usage;
    row.parts = vec![part; PARTS_MAX];
    (row.time_ms, row.admitted_ms, row.latency_ms) = (9_999_999_999_999, 9_999_999_999_999, 9_999_999);
    let step = Step {
        seq: u64::MAX,
        change: Change::Settle(Box::new(settlement)),
    };
    let record = Record::Step {
        account: text().into(),
        step,
    };
    let bytes = frame::HEAD as u64 + serde_json::to_vec(&record).unwrap().len() as u64;
    assert!(bytes <= STEP_BYTES_MAX, "{bytes}");
}

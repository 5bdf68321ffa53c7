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
        NodeId,
        consumption::{CostShare, LOSSES_BYTES_MAX, RequestTransport, RowTranslation},
        ids::{TAGS_MAX, Tag},
        lease::LeaseId,
        settlement_after_crash,
    },
    money::price::PARTS_MAX,
    wire::usage::{COUNT_MAX, RunKind},
};

/// A disk that is full while this is true.
#[derive(Debug)]
struct Full(Arc<AtomicBool>);

impl Disk for Full {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.allocate(file, bytes)
    }
}

pub(super) fn on_a_disk(path: &Path) -> (OpenedJournal, Arc<AtomicBool>) {
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
        while room.remaining() >= STEP_BYTES_MAX / 2 {
            journal.append_step("acme", settle("r"), 0, room).unwrap();
            written += 1;
        }
    }
    assert_eq!(numbers(journal, "acme").len(), written);
    let mut none = journal.reserve(0).unwrap();
    while journal
        .append_step("acme", AccountChange::nothing(), 0, &mut none)
        .is_ok()
    {}
    // A checkpoint may be shorter than a step, so that some find the last of the room.
    while journal.record_checkpoints(&[checkpoint("r", 0)]) == 0 {}
    assert_eq!(
        journal.record_checkpoints(&[checkpoint("r", 0)]),
        1,
        "it cannot be recorded"
    );
    let left = rooms[0].remaining();
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

#[test]
fn room_that_many_take_and_give_at_once_is_free_again() {
    let folder = scratch();
    let journal = &open(folder.path()).journal;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for number in 0..100 {
                    let request = format!("{thread}-{number}");
                    let mut room = journal.reserve(REQUEST_BYTES).unwrap();
                    let record = Record::Admit(Box::new(admitted(&request)));
                    journal.append(&record, &mut room).unwrap();
                    // Of some nothing more is heard.
                    if number % 3 > 0 {
                        journal.append_step("acme", settle(&request), 0, &mut room).unwrap();
                    }
                    let promised = journal.engine.lock().tail.promised();
                    assert!((room.remaining()..=8 * REQUEST_BYTES).contains(&promised), "{promised}");
                }
            });
        }
    });
    assert!(journal.end().segment > 2);
    assert_eq!(journal.engine.lock().tail.promised(), 0);
}

/// An admission whose texts are this one, but for those of a fixed form.
fn admitted_with_texts(text: &str) -> AdmittedRequest {
    let mut admitted = admitted(text);
    let row = Arc::make_mut(&mut admitted.row);
    for field in [
        &mut row.account,
        &mut row.protocol,
        &mut row.model_asked,
        &mut row.model,
        &mut row.provider,
        &mut row.outcome,
        &mut row.price_version,
    ] {
        *field = text.into();
    }
    let tag = |number: usize| Tag::parse(&format!("{}={number}{}", "n".repeat(32), "v".repeat(63)));
    row.tags = (0..TAGS_MAX).filter_map(tag).collect();
    (row.transport, row.translated) = (RequestTransport::WebSocket, Some("responses->messages".into()));
    row.modifiers = PriceModifiers {
        service_tier: Some(text.into()),
        speed: Some(text.into()),
        geo: Some(text.into()),
    };
    row.usage = Usage::from_parts([COUNT_MAX; Usage::NAMES.len()]);
    // A number with a sign takes the same room on either side.
    (row.time_ms, row.admitted_ms) = (i64::MIN, i64::MIN);
    (row.status, row.attempts) = (u16::MAX, Some(u32::MAX));
    (row.latency_ms, row.ttft_ms) = (u64::MAX, Some(u64::MAX));
    row.cost_nano_usd = NanoUsd::from_nanos(i64::MIN);
    row.hold_nano_usd = Some(NanoUsd::from_nanos(i64::MIN));
    AdmittedRequest {
        tokens_estimated: u64::MAX,
        lease: Some(LeaseId {
            holder: NodeId::none(),
            number: u64::MAX,
        }),
        ..admitted
    }
}

/// Its settlement's record, with the losses of a translation that take most room: short ones, each with its length.
fn settled_with_losses(mut admitted: AdmittedRequest) -> Record {
    let losses = (0..LOSSES_BYTES_MAX).map(|_| "dropped n".to_owned());
    Arc::make_mut(&mut admitted.row).losses = RowTranslation::new("", losses, usize::MAX / 2).losses;
    settled(admitted)
}

/// Its settlement's record.
fn settled(admitted: AdmittedRequest) -> Record {
    let settlement = settlement_after_crash(admitted, None);
    Record::Step {
        account: settlement.row.as_ref().unwrap().account.clone(),
        step: Step {
            seq: u64::MAX,
            change: AccountChange::Settle(Box::new(settlement)),
        },
    }
}

fn frame_bytes(record: &Record) -> u64 {
    let mut bytes = vec![0; frame::HEAD];
    record.write(&mut bytes).unwrap();
    bytes.len() as u64
}

#[test]
fn the_largest_records_of_a_request_fit_into_its_reservation() {
    let admitted = admitted_with_texts(&"x".repeat(128));
    let (admission, settlement) = (
        frame_bytes(&Record::Admit(Box::new(admitted.clone()))),
        frame_bytes(&settled_with_losses(admitted)),
    );
    assert!(admission <= ADMIT_BYTES_MAX, "{admission}");
    assert!(settlement <= STEP_BYTES_MAX, "{settlement}");
}

#[test]
fn the_parts_of_a_request_fit_into_its_reservation() {
    let text = || "x".repeat(40);
    let mut admitted = admitted_with_texts(&text());
    let part = CostShare {
        run: RunKind::Compaction,
        model: text(),
        usage: admitted.row.usage,
        priced_as: Some(text()),
        price_version: Some(text()),
        above_input_tokens: COUNT_MAX,
        cost_nano_usd: NanoUsd::from_nanos(i64::MIN),
    };
    Arc::make_mut(&mut admitted.row).parts = vec![part; PARTS_MAX];
    let bytes = frame_bytes(&settled_with_losses(admitted));
    assert!(bytes <= STEP_BYTES_MAX, "{bytes}");
}

/// What an admission and a charge of a usual request take.
#[test]
fn the_records_of_a_usual_request_are_small() {
    let mut admitted = admitted("req_0123456789abcdef0123456789");
    let row = Arc::make_mut(&mut admitted.row);
    (row.account, row.model_asked) = ("acme-research".into(), "claude-sonnet-4-5".into());
    (row.model, row.provider, row.price_version) =
        ("claude-sonnet-4-5".into(), "anthropic".into(), "2026-11-01".into());
    (row.time_ms, row.admitted_ms) = (1_795_000_000_000, 1_795_000_000_000);
    (row.usage.input_uncached, row.usage.output_text) = (1_200, 300);
    (row.status, row.ttft_ms, row.attempts) = (200, Some(350), Some(1));
    let admission = frame_bytes(&Record::Admit(Box::new(admitted.clone())));
    let settlement = frame_bytes(&settled(admitted));
    assert!(admission <= 192 && settlement <= 192, "{admission} {settlement}");
}

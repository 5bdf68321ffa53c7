//! The journal's disk is full: nothing is forwarded that could not be recorded, what runs is charged, and when there is
//! space again nobody has to do anything.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::skipped;
use crate::harness::{RecordingProvider, Steps, WeirBuilder, wait_until};

/// A small file system of its own.
pub(crate) struct Disk(TempDir);

impl Disk {
    /// `None` where none can be mounted.
    pub(crate) fn mount(bytes: u64) -> Option<Disk> {
        let disk = Disk(TempDir::new().unwrap());
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(disk.path())
            .output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it to its last byte.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.path().join("other")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.path().join("other")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that a failed test left may still have it open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

const SEGMENT_BYTES: i64 = 1 << 20;
/// More requests than fit into two segments.
const REQUESTS_MAX: usize = 3_000;

/// Whole answers at once, streams but for their last event, which comes with the first step.
fn provider(gate: Steps) -> RecordingProvider {
    RecordingProvider::start(move |request, answer| {
        let wire = wire_of(&request.target);
        if request.body.starts_with(br#"{"stream":true"#) || request.target.contains(":stream") {
            let (last, first) = events(wire).split_last().unwrap();
            answer.sse();
            first.iter().for_each(|event| answer.chunk(event));
            assert!(gate.wait(1));
            answer.chunk(last);
            answer.end();
        } else {
            answer.json(unary(wire));
        }
    })
}

#[test]
fn a_full_disk_refuses_what_it_could_not_record_and_loses_nothing_of_what_runs() {
    let Some(disk) = Disk::mount(3 << 20) else {
        return skipped("a tmpfs cannot be mounted here");
    };
    let steps = Steps::default();
    let provider = provider(steps.clone());
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("journal.path", disk.path().join("journal").to_str().unwrap())
        .set("journal.segment_bytes", SEGMENT_BYTES)
        .start();
    let key = weir.key().text;
    let mut running: Vec<_> = ALL_WIRES
        .into_iter()
        .map(|wire| {
            let mut client = weir.connect();
            let request = wire.streaming(&key, "hi");
            client.write(&request.bytes(Upload::Length));
            let head = client.head_to("POST");
            (client, head)
        })
        .collect();
    disk.fill();
    let mut client = weir.connect();
    // Tags of the greatest length make the records long.
    let tags = [0, 1, 2, 3, 4].map(|tag| format!("{}{tag}={}", "n".repeat(31), "v".repeat(64)));
    let request = Wire::Messages
        .request(&key, "hi")
        .header("x-weir-tag", &tags.join(", "));
    let mut served = 0;
    let refused = loop {
        let answer = client.exchange(&request);
        if answer.status != 200 {
            break answer;
        }
        served += 1;
        assert!(served < REQUESTS_MAX, "the disk never fills");
    };
    assert_refusal(Wire::Messages, &refused, 503, "api_error");
    let forwarded = provider.count();
    assert_eq!(forwarded, served + running.len());
    for wire in ALL_WIRES {
        for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
            let answer = weir.exchange(&request);
            let kind = match wire {
                Wire::Messages => "api_error",
                Wire::Responses => "journal_full",
                Wire::Gemini => "UNAVAILABLE",
            };
            assert_refusal(wire, &answer, 503, kind);
            assert_eq!(answer.header("retry-after"), Some("1"), "{wire:?}");
        }
    }
    assert_eq!(provider.count(), forwarded, "a refused request reaches no provider");
    let ready = weir.ops_get("/readyz");
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("\"journal_full\""), "{}", ready.text());
    // What runs ends well, and is charged.
    steps.permit();
    for (mut client, head) in running.drain(..) {
        let answer = client.rest(head);
        assert!(answer.complete && answer.status == 200);
    }
    let books = weir.books(served + ALL_WIRES.len());
    assert!(books.rows.iter().all(|row| row["usage_source"] == "reported"));

    disk.free();
    // Whoever sends nothing to a node that is not ready must see it come back.
    wait_until("readiness", || weir.ops_get("/readyz").status == 200);
    wait_until("requests to be served again", || {
        client.exchange(&request).status == 200
    });
    weir.books(served + ALL_WIRES.len() + 1);
}

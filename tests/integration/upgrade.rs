//! Upgrades: another process takes a running one's place, and no request notices. One that does not come up changes nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::client::Client;
use crate::harness::halting::Halting;
use crate::harness::load::Load;
use crate::harness::recordings::unary;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::upgrades::{children, is_running, signal};
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_for, wait_until};

/// Has a gateway put on each kind of store.
fn on_each_store(test: impl Fn(&dyn Fn(WeirBuilder) -> WeirBuilder)) {
    test(&|builder| builder);
    if let Some(redis) = RedisServer::start() {
        test(&|builder| builder.redis(&redis));
    }
}

/// Streams that last: one for each protocol, in turns.
struct LongStreams(Vec<std::thread::JoinHandle<()>>);

impl LongStreams {
    fn begin(weir: &Weir, key: &str, count: usize, deltas: usize) -> LongStreams {
        let wires = ALL_WIRES.into_iter().cycle().take(count);
        let streams = wires.map(|wire| {
            let prompt = format!("Tell me of weirs. [[sample: deltas={deltas} gap_ms=20]]");
            let mut client = weir.connect();
            client.write(&wire.streaming(key, &prompt).bytes(Upload::Length));
            let head = client.head_to("POST");
            std::thread::spawn(move || {
                let answer = client.rest(head);
                crate::harness::load::assert_served(wire, &answer);
            })
        });
        LongStreams(streams.collect())
    }

    fn end(self) {
        for stream in self.0 {
            stream.join().expect("a stream was cut");
        }
    }
}

#[test]
fn upgrades_under_load_fail_no_request_cut_no_stream_and_charge_each_answer_once() {
    on_each_store(|stored| {
        let provider = SampleProvider::start();
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let mut weir = stored(builder).set("gateway.drain_seconds", 120).start();
        let key = weir.key().text;
        let load = Load::start(&weir, &[&key], 6);
        load.serve(10);
        let mut streams = Vec::new();
        for _ in 0..rounds(2, 20) {
            streams.push(LongStreams::begin(&weir, &key, rounds(3, 12), rounds(40, 250)));
            let old = weir.serving_pid();
            assert_ne!(weir.upgrade(), old);
            load.serve(10);
        }
        assert_eq!(load.refused(), 0);
        load.end();
        streams.into_iter().for_each(LongStreams::end);
        weir.wait_for_predecessors();
        weir.books_as_billed(&provider, 0);
    });
}

#[test]
fn a_request_whose_body_is_on_its_way_is_admitted_after_the_upgrade() {
    let provider = RecordingProvider::recorded();
    on_each_store(|stored| {
        let mut weir = stored(WeirBuilder::new().all_providers(&provider.base_url())).start();
        let key = weir.key();
        let whole: Vec<_> = ALL_WIRES
            .map(|wire| (wire, wire.request(&key.text, "hi").bytes(Upload::Length)))
            .into();
        let mut half: Vec<(Wire, Client, &[u8])> = Vec::new();
        for (wire, bytes) in &whole {
            let (first, rest) = bytes.split_at(bytes.len() - 5);
            let mut client = weir.connect();
            client.write(first);
            half.push((*wire, client, rest));
        }
        wait_until("all requests under way", || {
            weir.metrics().contains("\nweir_requests_in_flight 3\n")
        });
        weir.upgrade();
        for (wire, client, rest) in &mut half {
            client.write(rest);
            let answer = client.response_to("POST");
            assert_eq!(
                (answer.status, answer.text()),
                (200, unary(*wire).to_owned()),
                "{wire:?}"
            );
            assert_eq!(answer.header("connection"), Some("close"));
        }
        weir.wait_for_predecessors();
        weir.books(3);
    });
}

#[test]
fn what_ends_in_the_process_before_is_soon_in_the_log_that_the_next_one_reads() {
    let provider = RecordingProvider::recorded();
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    let mut weir = builder.start();
    let key = weir.key();
    let bytes = Wire::Messages.request(&key.text, "hi").bytes(Upload::Length);
    let (first, rest) = bytes.split_at(bytes.len() - 5);
    let mut half = [weir.connect(), weir.connect()];
    half.iter_mut().for_each(|client| client.write(first));
    wait_until("both requests under way", || {
        weir.metrics().contains("\nweir_requests_in_flight 2\n")
    });
    let old = weir.serving_pid();
    weir.upgrade();
    for (ended, client) in (1..).zip(&mut half) {
        // It runs there as long as the second one does.
        assert!(is_running(old));
        client.write(rest);
        assert_eq!(client.response_to("POST").status, 200);
        wait_until("the row to be read", || weir.rows().len() == ended);
    }
    weir.wait_for_predecessors();
    weir.books(2);
}

#[test]
fn what_runs_in_the_process_before_is_held_and_counted_in_the_next_one() {
    let halting = Halting::start();
    let mut weir = Weir::start(&halting.provider.base_url());
    let key = weir.key_with(&["--concurrency", "1"]).text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = client.head_to("POST");
    let held = weir.account()["held_nano_usd"].as_i64().unwrap();
    assert!(held > 0);
    weir.upgrade();
    let account = weir.account();
    assert_eq!(
        (&account["running"], account["held_nano_usd"].as_i64().unwrap()),
        (&1.into(), held)
    );
    assert_eq!(
        weir.exchange(&Wire::Messages.request(&key, "hi")).status,
        429,
        "it runs there still"
    );
    halting.go_on.permit();
    assert!(client.rest(head).complete);
    weir.books(1);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}

#[test]
fn the_process_before_takes_nothing_new_and_ends_soon_after_its_last_stream() {
    let halting = Halting::start();
    let mut weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = client.head_to("POST");
    let mut idle = weir.connect();
    weir.upgrade();
    assert!(
        idle.closed_within(Duration::from_secs(30)),
        "an idle connection is kept"
    );
    // Each listener is the new process's alone: its requests in flight are none.
    for _ in 0..10 {
        assert!(weir.metrics().contains("\nweir_requests_in_flight 0\n"));
        assert_eq!(weir.ops_get("/readyz").status, 200);
    }
    assert!(weir.process().ended().is_none(), "it ended under a running stream");
    halting.go_on.permit();
    let rest = client.rest(head);
    let finished = Instant::now();
    assert!(rest.complete);
    assert!(weir.process().wait_ended().success());
    let took = finished.elapsed();
    assert!(took < Duration::from_secs(5), "it ended {took:?} after its last stream");
    weir.books(1);
}

/// A name of the binary that a test may give to another one.
fn own_program() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("weir");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    (folder, program)
}

/// Puts another program in the place of one that runs.
fn replace_program(program: &Path, script: &str) {
    let next = program.with_extension("next");
    std::fs::write(&next, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&next, mode).unwrap();
    std::fs::rename(&next, program).unwrap();
}

/// An upgrade that has to fail, and what it says.
#[track_caller]
fn refused(weir: &Weir) -> String {
    let output = weir.try_upgrade();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn a_broken_program_leaves_the_old_process_serving() {
    let provider = RecordingProvider::recorded();
    let (_folder, program) = own_program();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .program(&program)
        .start();
    let key = weir.key().text;
    let serves = |weir: &Weir, served: usize| {
        assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
        weir.books(served);
    };
    serves(&weir, 1);
    replace_program(&program, "#!/bin/sh\nexit 3\n");
    let said = refused(&weir);
    assert!(said.contains("exit status: 3"), "{said}");
    serves(&weir, 2);
    std::fs::remove_file(&program).unwrap();
    let said = refused(&weir);
    assert!(
        said.contains("cannot be started") && said.contains("No such file"),
        "{said}"
    );
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    weir.upgrade();
    serves(&weir, 3);
    weir.wait_for_predecessors();
}

#[test]
fn a_broken_configuration_leaves_the_old_process_serving_and_is_named() {
    let provider = RecordingProvider::recorded();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let conf = weir.folder().join("weir.toml");
    let good = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, good.replace("[gateway]", "[gateway]\nnonsense = 1")).unwrap();
    let said = refused(&weir);
    assert!(said.contains("weir.toml:") && said.contains("nonsense"), "{said}");
    let journal = weir.folder().join("journal");
    let elsewhere = weir.folder().join("elsewhere");
    let moved = good.replace(journal.to_str().unwrap(), elsewhere.to_str().unwrap());
    std::fs::write(&conf, moved).unwrap();
    let said = refused(&weir);
    assert!(said.contains("needs a restart") && said.contains("elsewhere"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("listen = \"{}\"", taken.local_addr().unwrap());
    std::fs::write(&conf, good.replacen("listen = \"127.0.0.1:0\"", &taken, 1)).unwrap();
    let said = refused(&weir);
    assert!(said.contains("free the address"), "{said}");
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    std::fs::write(&conf, good).unwrap();
    weir.upgrade();
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    weir.wait_for_predecessors();
    weir.books(2);
}

#[test]
fn a_new_process_that_is_killed_before_it_serves_leaves_the_old_one_serving() {
    // Where the new process stops: before it asks for the store, and when it has it.
    for (place, said) in [
        ("successor_prepared", "everything but the store is ready"),
        ("successor_has_the_store", "this process has the store now"),
    ] {
        on_each_store(|stored| {
            let halting = Halting::start();
            let builder = WeirBuilder::new().all_providers(&halting.provider.base_url());
            let mut weir = stored(builder)
                .variable("FAILPOINTS", &format!("{place}=pause"))
                .start();
            let key = weir.key().text;
            let mut client = weir.connect();
            client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
            let head = client.head_to("POST");
            let old = weir.process().id();
            std::thread::scope(|scope| {
                let upgrading = scope.spawn(|| refused(&weir));
                let new = wait_for("the new process", || children(old).pop());
                wait_until("it to stop where it is to", || {
                    let log = std::fs::read_to_string(weir.folder().join("weir.stderr"));
                    log.is_ok_and(|log| log.contains(said))
                });
                signal("KILL", new);
                let why = upgrading.join().unwrap();
                assert!(why.contains("signal: 9"), "{place}: {why}");
            });
            halting.go_on.permit();
            assert!(client.rest(head).complete, "{place}");
            assert_eq!(
                weir.exchange(&Wire::Messages.request(&key, "hi")).status,
                200,
                "{place}"
            );
            weir.books(2);
        });
    }
}

#[test]
fn what_ran_in_a_process_that_is_killed_after_the_upgrade_is_charged_by_the_next_one() {
    on_each_store(|stored| {
        let halting = Halting::start();
        let mut weir = stored(WeirBuilder::new().all_providers(&halting.provider.base_url())).start();
        let key = weir.key().text;
        let mut client = weir.connect();
        client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
        let _head = client.head_to("POST");
        let new = weir.upgrade();
        weir.process().kill();
        let books = weir.books(1);
        assert_eq!(books.rows[0]["outcome"], "crash", "{}", books.rows[0]);
        assert!(is_running(new));
        // The one after that goes on from both.
        weir.upgrade();
        weir.books(1);
    });
}

#[test]
fn a_start_beside_a_process_that_ends_serves_and_settles_what_that_one_leaves() {
    let halting = Halting::start();
    let mut weir = Weir::start(&halting.provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
    let head = client.head_to("POST");
    let new = weir.upgrade();
    // Nobody has the store any more; the first process has its journal still.
    signal("KILL", new);
    wait_until("its end", || !is_running(new));
    weir.start_another();
    halting.go_on.permit();
    assert!(client.rest(head).complete);
    // The row is in the files when the process ends, and charged when the next one has its lane.
    wait_until("the charge", || weir.account()["spent_nano_usd"] != 0);
    let books = weir.books(1);
    assert_ne!(books.rows[0]["outcome"], "crash", "its own process has seen its end");
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}

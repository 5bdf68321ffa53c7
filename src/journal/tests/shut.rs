//! Where nothing can be recorded it is said at once, and it ends by itself.

use super::*;

/// Waits until the journal's own thread has seen to it.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let began = clock::instant();
    while !holds() {
        assert!(clock::instant() - began < Duration::from_secs(30), "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_folder_that_is_removed_or_replaced_takes_nothing_until_it_is_put_back() {
    let root = scratch();
    let (here, away) = (root.path().join("journal"), root.path().join("away"));
    let journal = open(&here).journal;
    let mut room = journal.reserve(4 * REQUEST_BYTES).unwrap();
    journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    assert_eq!(journal.unavailability(), None);

    fs::rename(&here, &away).unwrap();
    until(|| journal.unavailability() == Some(JournalUnavailable::Gone(here.clone())));
    let refused = journal.reserve(1).unwrap_err().to_string();
    assert!(
        refused.contains("removed or replaced") && refused.contains("put it back"),
        "{refused}"
    );
    // What runs still ends, in the files that are open.
    journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();

    fs::create_dir(&here).unwrap();
    sync::housekeep(&journal.engine, &mut None);
    until(|| journal.unavailability() == Some(JournalUnavailable::Gone(here.clone())));
    assert!(
        names(&here).iter().all(|name| !name.ends_with(".wal")),
        "nothing of it gets into another folder"
    );
    fs::remove_dir_all(&here).unwrap();

    fs::rename(&away, &here).unwrap();
    until(|| journal.unavailability().is_none());
    journal.reserve(REQUEST_BYTES).unwrap();
    assert_eq!(numbers(&journal, "acme"), [1, 2]);
}

#[test]
fn a_segment_that_is_removed_while_it_is_written_is_noticed() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let segment = folder.path().join("000000000001.wal");
    let aside = folder.path().join("aside");
    fs::rename(&segment, &aside).unwrap();
    until(|| journal.unavailability() == Some(JournalUnavailable::Gone(segment.clone())));
    assert!(journal.reserve(1).is_err());
    // Another file of its name is not the segment.
    fs::copy(&aside, &segment).unwrap();
    let mut room = Reservation::new(Arc::clone(&journal.engine.free), 0);
    assert!(
        journal
            .append_step("acme", AccountChange::nothing(), 0, &mut room)
            .is_err()
    );
    assert!(!journal.engine.check_folder());
    fs::rename(&aside, &segment).unwrap();
    until(|| journal.unavailability().is_none());
}

#[test]
fn nothing_counts_as_lost_while_the_folder_is_away() {
    let root = scratch();
    let (here, away) = (root.path().join("journal"), root.path().join("away"));
    drop({
        let journal = open(&here).journal;
        step(&journal, "acme", AccountChange::nothing());
        journal
    });
    let journal = open(&here).journal;
    fs::rename(&here, &away).unwrap();
    let error = journal.unsent("acme", 10).unwrap_err().to_string();
    assert!(error.contains("removed or replaced"), "{error}");
    fs::rename(&away, &here).unwrap();
    let unsent = journal.unsent("acme", 10).unwrap();
    assert_eq!((unsent.steps.len(), unsent.lost), (1, 0));
}

#[test]
fn a_full_journal_says_so_and_finds_room_again_without_being_asked() {
    let folder = scratch();
    let (opened, full) = room::on_a_disk(folder.path());
    let journal = opened.journal;
    full.store(true, Ordering::Relaxed);
    let rooms: Vec<Reservation> = std::iter::from_fn(|| journal.reserve(STEP_BYTES_MAX).ok()).collect();
    let shut = journal.unavailability().unwrap();
    assert!(matches!(shut, JournalUnavailable::Full(_)), "{shut}");
    full.store(false, Ordering::Relaxed);
    until(|| journal.unavailability().is_none());
    drop(rooms);
}

#[test]
fn a_journal_with_nothing_to_do_rests_and_looks_where_it_is_when_it_is_asked() {
    let root = scratch();
    let (here, away) = (root.path().join("journal"), root.path().join("away"));
    let journal = open(&here).journal;
    let rests = || until(|| journal.engine.lock().tail.is_idle());
    step(&journal, "acme", AccountChange::nothing());
    rests();
    let gone = JournalUnavailable::Gone(here.clone());
    fs::rename(&here, &away).unwrap();
    assert_eq!(journal.reserve(1).unwrap_err(), gone, "at once");
    assert_eq!(journal.unavailability(), Some(gone));
    fs::rename(&away, &here).unwrap();
    until(|| journal.unavailability().is_none());
    step(&journal, "acme", AccountChange::nothing());
    until(|| !journal.engine.lock().tail.is_idle());

    // What comes up while it rests is seen to.
    rests();
    assert!(journal.acknowledge("acme", 2));
    let end = journal.end().to_string();
    until(|| fs::read_to_string(here.join("acknowledged")).is_ok_and(|noted| noted == end));
    rests();
    step(&journal, "acme", AccountChange::nothing());
    let last = records(&journal).last().unwrap().0;
    until(|| journal.engine.synced.borrow().is_on_disk(last));
}

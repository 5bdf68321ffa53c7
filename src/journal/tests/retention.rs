//! How long segments are kept.

use super::*;

#[test]
fn old_segments_go_when_they_are_acknowledged_and_the_numbers_stay() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    step(&journal, "early", AccountChange::nothing());
    let mut last = 0;
    while journal.end().segment < 4 {
        last = step(&journal, "acme", settle("r"));
    }
    let first = || fs::exists(folder.path().join("000000000001.wal")).unwrap();
    grow_old(&journal);
    assert!(first(), "nothing is acknowledged");
    journal.acknowledge("acme", last);
    grow_old(&journal);
    assert!(first(), "one account is not acknowledged");
    journal.acknowledge("early", 1);
    grow_old(&journal);
    assert!(first(), "its rows are not told");
    tell(&journal);
    journal.engine.remove_old(clock::unix_millis());
    assert!(first(), "it is young");
    grow_old(&journal);
    assert!(!first());
    assert_eq!(records(&journal).first().map(|(position, _)| position.segment), Some(4));
    assert!(journal.bytes() <= 2 * settings(folder.path()).segment_bytes);
    drop(journal);
    let journal = open(folder.path()).journal;
    assert_eq!(
        (
            step(&journal, "early", AccountChange::nothing()),
            step(&journal, "acme", AccountChange::nothing())
        ),
        (2, last + 1)
    );
}

#[test]
fn a_clock_that_jumps_ahead_leaves_the_journal() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut last = 0;
    while journal.end().segment < 3 {
        last = step(&journal, "acme", settle("r"));
    }
    journal.acknowledge("acme", last);
    tell(&journal);
    let now = clock::unix_millis();
    journal.engine.remove_old(now);
    let first = folder.path().join("000000000001.wal");
    let far_ahead = now + 200 * i64::try_from(DAY.as_millis()).unwrap();
    journal.engine.remove_old(far_ahead);
    assert!(first.exists());
    drop(journal);
    // How far removal has gone is known to the next start, too.
    let journal = open(folder.path()).journal;
    tell(&journal);
    journal.acknowledge("acme", last);
    journal.engine.remove_old(far_ahead + 1);
    assert!(first.exists());
    grow_old(&journal);
    assert!(!first.exists());
}

#[test]
fn a_start_after_a_removal_knows_what_is_not_acknowledged() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut last = 0;
    while journal.end().segment < 3 {
        last = step(&journal, "acme", settle("r"));
    }
    journal.acknowledge("acme", last);
    step(&journal, "acme", settle("r"));
    tell(&journal);
    grow_old(&journal);
    assert!(!folder.path().join("000000000001.wal").exists());
    drop(journal);
    let journal = open(folder.path()).journal;
    assert_eq!(journal.unacknowledged_steps(), 1);
    let unsent = journal.unsent("acme", 10).unwrap();
    assert_eq!((unsent.steps.len(), unsent.lost), (1, 0));
    assert_eq!(unsent.steps[0].seq, last + 1);
    assert_eq!(step(&journal, "acme", settle("r")), last + 2);
}

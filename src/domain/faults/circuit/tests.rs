//! Tests of `circuit`.

use proptest::prelude::*;

use super::*;
use crate::edges::clock;

/// One that has just been opened by failures, and when it may be asked again.
fn opened(now: Instant) -> (Circuit, Instant) {
    let mut circuit = Circuit::default();
    for _ in 0..EJECTED_AFTER {
        circuit.on_failure(CircuitEntry::Closed, now);
    }
    (circuit, now + EJECTED_FIRST)
}

#[test]
fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
    let now = clock::instant();
    let mut circuit = Circuit::default();
    for _ in 0..10 {
        for _ in 1..EJECTED_AFTER {
            assert!(!circuit.on_failure(CircuitEntry::Closed, now));
        }
        circuit.on_success(CircuitEntry::Closed, now);
    }
    assert!(circuit.is_closed(now) && circuit.enter(now) == Some(CircuitEntry::Closed));
    let (circuit, until) = opened(now);
    assert_eq!(circuit.open_until(now), Some(until));
    assert!(!circuit.is_closed(now) && !circuit.admits(now) && circuit.clone().enter(now).is_none());
}

#[test]
fn one_request_asks_again_and_each_success_lets_one_more_ask() {
    let (mut circuit, now) = opened(clock::instant());
    for together in 1..=READMITTED_AFTER {
        let mut probes: Vec<CircuitEntry> = std::iter::from_fn(|| circuit.enter(now)).take(100).collect();
        assert_eq!(probes.len(), together as usize);
        let first = probes.remove(0);
        probes.into_iter().for_each(|probe| circuit.on_no_result(probe));
        assert_eq!(circuit.on_success(first, now), together == READMITTED_AFTER);
    }
    assert!(circuit.is_closed(now));
}

#[test]
fn a_probe_that_fails_opens_it_for_twice_as_long_up_to_the_longest() {
    let (mut circuit, mut now) = opened(clock::instant());
    let mut expected = EJECTED_FIRST;
    for _ in 0..20 {
        expected = (expected * 2).min(EJECTED_MAX);
        let probe = circuit.enter(now).unwrap();
        assert!(circuit.on_failure(probe, now));
        assert_eq!(circuit.open_until(now), Some(now + expected));
        now += expected;
    }
    for _ in 0..READMITTED_AFTER {
        let probe = circuit.enter(now).unwrap();
        circuit.on_success(probe, now);
    }
    for _ in 0..EJECTED_AFTER {
        circuit.on_failure(CircuitEntry::Closed, now);
    }
    assert_eq!(circuit.open_until(now), Some(now + EJECTED_FIRST), "begins anew");
}

#[test]
fn who_leaves_without_a_word_makes_room_for_the_next_probe() {
    let (mut circuit, now) = opened(clock::instant());
    let probe = circuit.enter(now).unwrap();
    assert!(circuit.enter(now).is_none());
    circuit.on_no_result(probe);
    assert!(circuit.enter(now).is_some());
}

#[test]
fn what_was_sent_before_says_nothing_of_now() {
    let start = clock::instant();
    let (mut circuit, now) = opened(start);
    circuit.on_success(CircuitEntry::Closed, now);
    assert_eq!(circuit.open_until(start), Some(now), "sent before the failures");
    let probe = circuit.enter(now).unwrap();
    assert!(
        !circuit.on_failure(CircuitEntry::Closed, now),
        "sent before the failures"
    );
    circuit.on_failure(probe, now);
    let later = now + EJECTED_FIRST * 2;
    let next = circuit.enter(later).unwrap();
    circuit.on_success(probe, later);
    circuit.on_no_result(probe);
    assert!(circuit.enter(later).is_none(), "{next:?} alone asks");
}

#[test]
fn a_last_resort_that_works_begins_the_readmission() {
    let start = clock::instant();
    let (mut circuit, until) = opened(start);
    let last = circuit.force_enter(start);
    assert!(!circuit.on_failure(last, start) && circuit.open_until(start) == Some(until));
    circuit.on_success(last, start);
    assert!(!circuit.is_closed(start) && circuit.admits(start));
}

#[test]
fn a_rest_is_never_shortened_and_ends_with_a_probe() {
    let start = clock::instant();
    let mut circuit = Circuit::default();
    circuit.cool_down(Duration::from_secs(9), start);
    circuit.cool_down(Duration::from_secs(1), start);
    assert_eq!(circuit.open_until(start), Some(start + Duration::from_secs(9)));
    let later = start + Duration::from_secs(9);
    assert!(circuit.enter(later).is_some() && circuit.enter(later).is_none());
}

#[test]
fn what_nobody_asked_for_long_is_asked_by_all() {
    let (mut circuit, until) = opened(clock::instant());
    let later = until + FORGOTTEN_AFTER;
    assert!(!circuit.is_closed(later - Duration::from_millis(1)));
    assert!(circuit.is_closed(later) && circuit.enter(later) == Some(CircuitEntry::Closed));
    let (mut circuit, until) = opened(clock::instant());
    let probe = circuit.enter(until).unwrap();
    let later = until + FORGOTTEN_AFTER;
    assert!(circuit.enter(later).is_none(), "the probe is not back yet");
    circuit.on_success(probe, later);
    assert_eq!(circuit.enter(later), Some(CircuitEntry::Closed));
}

/// What happens to a circuit.
#[derive(Clone, Copy, Debug)]
enum CircuitCall {
    Enter,
    EnterAnyway,
    /// One of those under way ends.
    End(usize, End),
    Rest(u64),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Worked,
    Failed,
    Left,
}

fn steps() -> impl Strategy<Value = Vec<CircuitCall>> {
    let end = prop_oneof![Just(End::Worked), Just(End::Failed), Just(End::Left)];
    let step = prop_oneof![
        4 => Just(CircuitCall::Enter),
        1 => Just(CircuitCall::EnterAnyway),
        5 => (0_usize..8, end).prop_map(|(which, end)| CircuitCall::End(which, end)),
        1 => (0_u64..20_000).prop_map(CircuitCall::Rest),
        3 => (0_u64..8_000).prop_map(CircuitCall::Pass),
        1 => (0_u64..400_000).prop_map(CircuitCall::Pass),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A run of a circuit, with what is under way.
struct Run {
    circuit: Circuit,
    now: Instant,
    under_way: Vec<CircuitEntry>,
    /// Successes told since it was last opened.
    succeeded: usize,
    round: u64,
}

impl Run {
    fn new() -> Self {
        Self {
            circuit: Circuit::default(),
            now: clock::instant(),
            under_way: Vec::new(),
            succeeded: 0,
            round: 0,
        }
    }

    fn step(&mut self, step: CircuitCall) {
        match step {
            CircuitCall::Enter => self.under_way.extend(self.circuit.enter(self.now)),
            CircuitCall::EnterAnyway => self.under_way.push(self.circuit.force_enter(self.now)),
            CircuitCall::End(which, end) => {
                if which < self.under_way.len() {
                    self.end(which, end);
                }
            }
            CircuitCall::Rest(ms) => self.circuit.cool_down(Duration::from_millis(ms), self.now),
            CircuitCall::Pass(ms) => self.now += Duration::from_millis(ms),
        }
        if self.circuit.round != self.round {
            self.round = self.circuit.round;
            self.succeeded = 0;
        }
    }

    fn end(&mut self, which: usize, end: End) {
        let entry = self.under_way.swap_remove(which);
        match end {
            End::Worked => {
                let round = self.circuit.round;
                let counts = entry == CircuitEntry::Probe { round } || entry == CircuitEntry::LastResort { round };
                self.succeeded += usize::from(counts);
                self.circuit.on_success(entry, self.now);
            }
            End::Failed => {
                self.circuit.on_failure(entry, self.now);
            }
            End::Left => self.circuit.on_no_result(entry),
        }
    }

    fn probes(&self) -> usize {
        let round = self.circuit.round;
        let is_probe = |entry: &&CircuitEntry| **entry == CircuitEntry::Probe { round };
        self.under_way.iter().filter(is_probe).count()
    }
}

proptest! {
    #[test]
    fn there_is_one_probe_at_a_time_and_one_more_for_each_success(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
            prop_assert!(run.circuit.is_closed(run.now) || run.probes() <= 1 + run.succeeded);
        }
    }

    #[test]
    fn what_works_is_open_to_all_and_what_is_open_to_nobody(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
            let entry = run.circuit.clone().enter(run.now);
            prop_assert_eq!(entry.is_some(), run.circuit.admits(run.now));
            prop_assert_eq!(entry == Some(CircuitEntry::Closed), run.circuit.is_closed(run.now));
            if run.circuit.open_until(run.now).is_some() {
                prop_assert_eq!(entry, None);
            }
        }
    }

    #[test]
    fn nothing_is_passed_over_for_ever(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
        }
        while !run.under_way.is_empty() {
            run.end(0, End::Left);
        }
        run.now = run.circuit.open_until(run.now).unwrap_or(run.now);
        for _ in 0..READMITTED_AFTER {
            let entry = run.circuit.enter(run.now);
            prop_assert!(entry.is_some());
            run.circuit.on_success(entry.unwrap(), run.now);
        }
        prop_assert!(run.circuit.is_closed(run.now));
    }
}

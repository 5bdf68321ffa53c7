//! When attempts are checked and ended, whatever happens to them in between.

use std::{io::Read, net::TcpListener};

use proptest::{collection::vec, prelude::*};
use rustix::net::sockopt::set_socket_linger;
use tokio::sync::Semaphore;

use super::*;
use crate::{gateway::presence::DetachLimits, telemetry::metrics::Metrics};

const HOUR: Duration = Duration::from_secs(3600);

const LONG: AttemptLimits = AttemptLimits {
    first_byte: HOUR,
    idle: HOUR,
    total: HOUR,
    error_body: HOUR,
};

/// How much later than a limit an attempt has ended at the latest: what is checked is checked within a millisecond.
const ENDED_WITHIN: Duration = Duration::from_millis(51);

/// A connection: the gateway's handle, and the provider's end. It is reset when it is closed, so that its ports are free at once:
/// a machine has some ten thousand, and a closed one rests for a minute.
fn pair() -> (Arc<SocketHandle>, SocketHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gateway = SocketHandle::connect(listener.local_addr().expect("an address")).expect("connected");
    let (provider, _) = listener.accept().expect("a peer");
    for end in [&gateway, &provider] {
        set_socket_linger(end, Some(Duration::ZERO)).expect("a socket");
    }
    (Arc::new(gateway), provider)
}

fn presence(finish: Duration) -> Arc<Presence> {
    let metrics = Arc::new(Metrics::new(&[], &[]).expect("metrics"));
    let terms = DetachLimits { stream: true, finish };
    let presence = Presence::new(terms, Arc::new(Semaphore::new(1)), metrics);
    presence.on_request_read();
    presence
}

async fn ended(deadline: &Deadline) -> Fate {
    while deadline.fate() == Fate::Running {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    deadline.fate()
}

fn running(deadlines: &Deadlines) -> usize {
    let mut count = 0;
    deadlines.shared.for_each(|_| count += 1);
    count
}

#[tokio::test]
async fn a_limit_that_passes_shuts_the_connection_down() {
    let deadlines = Deadlines::new(Drain::default());
    let keeper = tokio::spawn(deadlines.clone().run());
    let (handle, mut provider) = pair();
    let (other, _provider) = pair();
    let goes_on = deadlines.begin(other, LONG, None, clock::instant());
    let first_byte = Duration::from_millis(20);
    let started = clock::instant();
    let deadline = deadlines.begin(handle, AttemptLimits { first_byte, ..LONG }, None, started);
    assert_eq!(ended(&deadline).await, Fate::Expired);
    assert!(clock::instant() - started >= first_byte && goes_on.fate() == Fate::Running);
    assert_eq!(provider.read(&mut [0]).expect("closed"), 0);
    keeper.abort();
}

#[tokio::test]
async fn the_first_byte_an_error_and_the_clients_departure_bring_earlier_limits() {
    let deadlines = Deadlines::new(Drain::default());
    let keeper = tokio::spawn(deadlines.clone().run());
    let soon = Duration::from_millis(60);
    let begin = |limits, presence| deadlines.begin(pair().0, limits, presence, clock::instant());
    let idle = begin(AttemptLimits { idle: soon, ..LONG }, None);
    let error = begin(
        AttemptLimits {
            error_body: soon,
            ..LONG
        },
        None,
    );
    let left = presence(soon);
    let unattended = begin(LONG, Some(Arc::clone(&left)));
    tokio::time::sleep(2 * soon).await;
    for deadline in [&idle, &error, &unattended] {
        assert_eq!(deadline.fate(), Fate::Running);
    }
    idle.on_byte(clock::instant());
    error.on_error_head(clock::instant());
    assert!(left.on_disconnect());
    for deadline in [&idle, &error, &unattended] {
        assert_eq!(ended(deadline).await, Fate::Expired);
    }
    keeper.abort();
}

#[tokio::test]
async fn the_end_of_the_process_stops_what_runs_and_what_begins() {
    let drain = Drain::default();
    let deadlines = Deadlines::new(drain.clone());
    let keeper = tokio::spawn(deadlines.clone().run());
    let (handle, mut provider) = pair();
    let runs = deadlines.begin(handle, LONG, None, clock::instant());
    tokio::task::yield_now().await;
    drain.expire();
    keeper.await.expect("it ends");
    assert_eq!(runs.fate(), Fate::Stopped);
    assert_eq!(provider.read(&mut [0]).expect("closed"), 0);
    let begins = deadlines.begin(pair().0, LONG, None, clock::instant());
    assert_eq!(begins.fate(), Fate::Stopped);
}

#[tokio::test]
async fn nothing_wakes_the_task_while_nothing_runs_or_can_have_passed() {
    let deadlines = Deadlines::new(Drain::default());
    let now = clock::instant();
    let is_due = |deadlines: &Deadlines| {
        let shared = Arc::clone(&deadlines.shared);
        async move { futures_util::poll!(std::pin::pin!(shared.due(now))).is_ready() }
    };
    assert!(!is_due(&deadlines).await);
    let deadline = deadlines.begin(pair().0, LONG, None, now);
    let first = deadlines.shared.next_ms.load(Ordering::SeqCst);
    deadline.on_byte(now);
    deadline.on_error_head(now);
    drop(deadlines.begin(pair().0, LONG, None, now + HOUR / 2));
    drop(deadline);
    assert_eq!(deadlines.shared.next_ms.load(Ordering::SeqCst), first);
    assert!(!is_due(&deadlines).await);
    deadlines.shared.check(now);
    assert_eq!(deadlines.shared.next_ms.load(Ordering::SeqCst), u64::MAX);
}

/// What happens to one of the attempts.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(AttemptLimits),
    Byte,
    Error,
    End,
}

/// Durations that often pass, and often together.
fn limit() -> impl Strategy<Value = Duration> {
    (1_u64..30).prop_map(|tens| Duration::from_millis(10 * tens))
}

fn event() -> impl Strategy<Value = Event> {
    let limits = (limit(), limit(), limit(), limit()).prop_map(|(first_byte, idle, total, error_body)| AttemptLimits {
        first_byte,
        idle,
        total: 3 * total,
        error_body,
    });
    prop_oneof![
        2 => limits.prop_map(Event::Begin),
        4 => Just(Event::Byte),
        1 => Just(Event::Error),
        1 => Just(Event::End),
    ]
}

/// An attempt as it should be.
struct Model {
    deadline: Deadline,
    limits: AttemptLimits,
    started: Instant,
    byte: Option<Instant>,
    error: Option<Instant>,
}

impl Model {
    fn due(&self) -> Instant {
        let next = match self.byte {
            Some(byte) => byte + self.limits.idle,
            None => self.started + self.limits.first_byte,
        };
        let rest = self.error.map(|error| error + self.limits.error_body);
        let due = next.min(self.started + self.limits.total);
        rest.map_or(due, |rest| rest.min(due))
    }
}

proptest! {
    // Each case makes some dozens of connections.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.min(1_000)))]

    /// The checks that are asked for are enough: each attempt ends soon after its limit, and none before.
    #[test]
    fn attempts_end_with_their_limits_whatever_happens(steps in vec((0_u64..120, 0_usize..4, event()), 1..40)) {
        let deadlines = Deadlines::new(Drain::default());
        let shared = &deadlines.shared;
        let mut attempts: [Option<Model>; 4] = [None, None, None, None];
        let (mut now, mut earliest) = (shared.began, shared.began);
        let end = [(1000, 0, Event::Byte)];
        for (pause, place, event) in steps.iter().copied().chain(end) {
            let until = now + Duration::from_millis(pause);
            // The task's checks on the way there.
            loop {
                let next = shared.next_ms.load(Ordering::SeqCst);
                if next == u64::MAX {
                    break;
                }
                let check = (shared.began + Duration::from_millis(next + 1)).max(earliest);
                if check > until {
                    break;
                }
                shared.check(check);
                earliest = check + LATE_MAX;
                for attempt in attempts.iter().flatten() {
                    let has_ended = attempt.deadline.fate() == Fate::Expired;
                    prop_assert!(has_ended || attempt.due() > check);
                }
            }
            now = until;
            for attempt in attempts.iter().flatten() {
                match attempt.deadline.fate() {
                    Fate::Expired => prop_assert!(attempt.due() <= now),
                    _ => prop_assert!(now < attempt.due() + ENDED_WITHIN, "late by {:?}", now - attempt.due()),
                }
            }
            let attempt = &mut attempts[place];
            let runs = attempt.as_ref().is_some_and(|attempt| attempt.deadline.fate() == Fate::Running);
            match (event, attempt.as_mut()) {
                (Event::Begin(limits), _) => {
                    let deadline = deadlines.begin(pair().0, limits, None, now);
                    *attempt = Some(Model { deadline, limits, started: now, byte: None, error: None });
                }
                (Event::End, _) => *attempt = None,
                (Event::Byte, Some(attempt)) if runs => {
                    attempt.deadline.on_byte(now);
                    attempt.byte = Some(now.max(attempt.started + Duration::from_millis(1)));
                }
                (Event::Error, Some(attempt)) if runs => {
                    attempt.deadline.on_error_head(now);
                    attempt.error = Some(now.max(attempt.started + Duration::from_millis(1)));
                }
                _ => {}
            }
            prop_assert_eq!(running(&deadlines), attempts.iter().flatten().count());
        }
    }

    /// What ends is forgotten, and nothing else, in whichever order attempts end.
    #[test]
    fn what_has_ended_is_forgotten(order in Just((0..64).collect::<Vec<usize>>()).prop_shuffle()) {
        let deadlines = Deadlines::new(Drain::default());
        let (handle, now) = (pair().0, clock::instant());
        let mut attempts: Vec<_> = (0..order.len())
            .map(|_| Some(deadlines.begin(Arc::clone(&handle), LONG, None, now)))
            .collect();
        for (ended, place) in order.iter().enumerate() {
            attempts[*place] = None;
            prop_assert_eq!(running(&deadlines), order.len() - ended - 1);
            let mut left: Vec<_> = attempts.iter().flatten().map(|attempt| Arc::as_ptr(&attempt.state)).collect();
            let mut kept = Vec::new();
            deadlines.shared.for_each(|state| kept.push(std::ptr::from_ref(state)));
            left.sort();
            kept.sort();
            prop_assert_eq!(left, kept);
        }
    }
}

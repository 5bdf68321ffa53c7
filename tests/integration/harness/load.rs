//! Clients that ask without pause, and see to it that every answer is whole: what they asked for, or "not now".

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::client::{Client, Response};
use super::request::{ALL_WIRES, Upload, Wire};
use super::shapes::{assert_refusal, in_band_error};
use super::wait::{wait_until, wait_within};
use super::weir::Weir;

/// How long a client waits that was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// How many refusals in a row say that nobody is served.
const IN_A_ROW: usize = 100;

/// Running clients of all protocols, half of them streaming.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    served: AtomicUsize,
    refused: AtomicUsize,
    /// When each answer began, and how long its client had waited for it.
    waits: Mutex<Vec<(Instant, Duration)>>,
}

impl Load {
    /// Starts clients with these keys in turn. The gateway stays where it is while they run.
    pub(crate) fn start(weir: &Weir, keys: &[&str], clients: usize) -> Load {
        let shared = Arc::new(Shared::default());
        let clients = (0..clients).map(|number| {
            let (shared, gateway) = (Arc::clone(&shared), weir.gateway);
            let (wire, key) = (ALL_WIRES[number % 3], keys[number % keys.len()].to_owned());
            let prompt = "Tell me of weirs. [[sample: deltas=8 gap_ms=3]]";
            let request = if number % 2 == 0 {
                wire.streaming(&key, prompt)
            } else {
                wire.request(&key, prompt)
            };
            std::thread::spawn(move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    let mut client = Client::connect(gateway);
                    let sent = Instant::now();
                    client.write(&request.bytes(Upload::Length));
                    let head = client.head_to("POST");
                    shared.waits.lock().unwrap().push((sent, sent.elapsed()));
                    let answer = client.rest(head);
                    if answer.status == 200 {
                        assert_served(wire, &answer);
                        shared.served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_not_now(wire, &answer);
                        shared.refused.fetch_add(1, Ordering::Relaxed);
                        wait_within(REFUSED_PAUSE, || shared.stop.load(Ordering::Relaxed).then_some(()));
                    }
                }
            })
        });
        let clients = clients.collect();
        Load { shared, clients }
    }

    /// Answers in full so far.
    pub(crate) fn served(&self) -> usize {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Refusals so far.
    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Waits for so many more answers in full.
    #[track_caller]
    pub(crate) fn serve(&self, more: usize) {
        let before = self.served();
        wait_until("requests to be served", || {
            self.assert_alive();
            self.served() >= before + more
        });
    }

    /// Waits for a refusal more.
    #[track_caller]
    pub(crate) fn refuse(&self) {
        let before = self.refused();
        wait_until("a request to be refused", || {
            self.assert_alive();
            self.refused() > before
        });
    }

    /// Waits until nobody is served any more: so many refusals in a row that whatever ran at the first of them is over.
    #[track_caller]
    pub(crate) fn refuse_all(&self) {
        let mut since = (self.served(), self.refused());
        wait_until("every request to be refused", || {
            self.assert_alive();
            if self.served() != since.0 {
                since = (self.served(), self.refused());
            }
            self.refused() >= since.1 + IN_A_ROW
        });
    }

    /// How long those had to wait for an answer that asked after a moment, the longest last.
    pub(crate) fn waits_since(&self, moment: Instant) -> Vec<Duration> {
        let waits = self.shared.waits.lock().unwrap();
        let mut waits: Vec<Duration> = waits
            .iter()
            .filter(|(sent, _)| *sent >= moment)
            .map(|(_, wait)| *wait)
            .collect();
        waits.sort_unstable();
        waits
    }

    /// Ends it when every client has its last answer; tells how many were served.
    #[track_caller]
    pub(crate) fn end(mut self) -> usize {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("a client was not answered as it should be");
        }
        self.served()
    }

    #[track_caller]
    fn assert_alive(&self) {
        let gone = self.clients.iter().any(JoinHandle::is_finished);
        assert!(!gone, "a client was not answered as it should be");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Checks that an answer is whole.
#[track_caller]
pub(crate) fn assert_served(wire: Wire, answer: &Response) {
    assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
    assert!(answer.complete, "{wire:?}: an answer that is cut");
    assert!(
        in_band_error(wire, &answer.text()).is_none(),
        "{wire:?}: {}",
        answer.text()
    );
}

/// Checks that an answer says "the store is away, come again" in the protocol's shape.
#[track_caller]
pub(crate) fn assert_not_now(wire: Wire, answer: &Response) {
    let kind = match wire {
        Wire::Messages => "api_error",
        Wire::Responses => "store_unavailable",
        Wire::Gemini => "UNAVAILABLE",
    };
    assert_refusal(wire, answer, 503, kind);
    assert_eq!(answer.header("retry-after"), Some("1"), "{wire:?}");
}

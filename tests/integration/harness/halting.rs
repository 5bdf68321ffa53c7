//! A provider that stops in the middle of its answers until it is let go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::recordings::{events, unary};
use super::request::wire_of;
use super::{RecordingProvider, Steps};

/// A provider that stops in the middle of a stream until it is let go on, and counts those that leave it meanwhile.
pub(crate) struct Halting {
    pub(crate) provider: RecordingProvider,
    pub(crate) go_on: Steps,
    dropped: Arc<AtomicUsize>,
}

impl Halting {
    /// Starts one; it goes on once `go_on` is permitted.
    pub(crate) fn start() -> Halting {
        let (go_on, dropped) = (Steps::default(), Arc::new(AtomicUsize::new(0)));
        let (gate, count) = (go_on.clone(), Arc::clone(&dropped));
        let provider = RecordingProvider::start(move |request, answer| {
            let wire = wire_of(&request.target);
            let is_stream = request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#);
            let stream = events(wire);
            let (first, rest) = stream.split_at(stream.len() / 2);
            if is_stream {
                answer.sse();
                first.iter().for_each(|event| answer.chunk(event));
            }
            while gate.permitted() == 0 {
                if answer.wait_peer_left(Duration::from_millis(10)).is_some() {
                    count.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            if is_stream {
                rest.iter().for_each(|event| answer.chunk(event));
                answer.end();
            } else {
                answer.json(unary(wire));
            }
        });
        Halting {
            provider,
            go_on,
            dropped,
        }
    }

    /// How many of its answers were given up before they could go on.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

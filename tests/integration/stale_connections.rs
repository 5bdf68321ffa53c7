//! A connection of the pool that its provider has closed meanwhile is told from a provider that took its time and failed.

use std::time::Duration;

use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::{RecordingProvider, Weir};

/// Longer than a closed connection goes unnoticed, so that only a request at work can have been cut.
const AT_WORK: Duration = Duration::from_millis(1_500);

#[test]
fn a_request_that_ran_for_a_while_is_not_sent_twice() {
    let provider = RecordingProvider::start(|request, answer| {
        if String::from_utf8_lossy(&request.body).contains("work, then break") {
            // Nobody leaves meanwhile: this is a wait for the time alone.
            assert!(answer.wait_peer_left(AT_WORK).is_none());
            return answer.cut();
        }
        answer.least();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let over_the_pool = ALL_WIRES.iter().cycle().take(12).any(|wire: &Wire| {
        assert_eq!(weir.exchange(&wire.request(&key, "hi")).status, 200);
        let (connections, requests) = (provider.connections(), provider.count());
        let answer = weir.exchange(&wire.request(&key, "work, then break"));
        assert_eq!(provider.count(), requests + 1, "the provider did the same work twice");
        assert_eq!(answer.status, 502, "{}", answer.text());
        // A connection goes back into the pool a moment after its answer: the request may have needed a new one.
        provider.connections() == connections
    });
    assert!(over_the_pool, "no request took a connection of the pool");
}

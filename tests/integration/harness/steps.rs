//! A gate that two threads pass one step at a time: how a test holds a scripted provider between two chunks.

use std::sync::{Arc, Condvar, Mutex};

use super::wait::DEADLINE;

/// Counts permitted steps. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    shared: Arc<(Mutex<usize>, Condvar)>,
}

impl Steps {
    /// Permits one step more.
    pub(crate) fn permit(&self) {
        *self.shared.0.lock().unwrap() += 1;
        self.shared.1.notify_all();
    }

    /// Steps permitted so far.
    pub(crate) fn permitted(&self) -> usize {
        *self.shared.0.lock().unwrap()
    }

    /// Waits until `count` steps have been permitted. False when the deadline passed first.
    pub(crate) fn wait(&self, count: usize) -> bool {
        let guard = self.shared.0.lock().unwrap();
        let (_guard, late) = self
            .shared
            .1
            .wait_timeout_while(guard, DEADLINE, |permitted| *permitted < count)
            .unwrap();
        !late.timed_out()
    }
}

//! Counting the requests that run, so that the process can end when the last one has.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts running requests.
#[derive(Clone, Debug)]
pub struct Drain {
    running: Arc<watch::Sender<usize>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            running: Arc::new(watch::Sender::new(0)),
        }
    }
}

/// One running request.
#[derive(Debug)]
pub struct InFlight {
    running: Arc<watch::Sender<usize>>,
}

impl Drain {
    /// A request begins.
    pub fn enter(&self) -> InFlight {
        self.running.send_modify(|running| *running += 1);
        InFlight {
            running: Arc::clone(&self.running),
        }
    }

    /// How many requests run.
    pub fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until none does.
    pub async fn idle(&self) {
        let mut running = self.running.subscribe();
        // The sender lives as long as this value, so waiting cannot fail.
        let _ = running.wait_for(|running| *running == 0).await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_is_reached_when_the_last_request_has_ended() {
        let drain = Drain::default();
        let first = drain.enter();
        let second = drain.enter();
        assert_eq!(drain.running(), 2);
        drop(first);
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.idle().await }
        });
        drop(second);
        waiting.await.expect("no panic");
        assert_eq!(drain.running(), 0);
    }
}

//! Load on one proxy: many connections at once, and the CPU time that the proxy spends on it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{driver::Connection, fleet::Proxy, process::Cpu, reference::Reference, request::Form};

/// After the last answer, before the CPU time is read: the proxy may still have something to write down.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// Complaints that are shown.
const COMPLAINTS_MAX: usize = 5;

/// Connections to one proxy, kept over all rounds of a phase.
pub(crate) struct Load {
    connections: Vec<Connection>,
    request: Arc<[u8]>,
    reference: Arc<Reference>,
    /// From the first connection's start to the last one's, so that paced streams do not beat in time.
    spread: Duration,
}

/// What one round cost.
pub(crate) struct Spent {
    /// By the proxy alone.
    pub(crate) cpu: Cpu,
    /// Answers, all complete and equal to the provider's.
    pub(crate) answers: f64,
    /// Chunks that the provider sent for them.
    pub(crate) chunks_sent: f64,
    /// Chunks that arrived.
    pub(crate) chunks_received: f64,
    /// From the first request to the last byte.
    pub(crate) elapsed: Duration,
}

impl Load {
    /// Opens `at_once` connections by one exchange on each, all at the same time, so that both sides of the proxy are
    /// warm.
    pub(crate) async fn warm(
        proxy: &Proxy,
        form: Form,
        reference: &Arc<Reference>,
        at_once: usize,
        spread: Duration,
    ) -> Result<Self, String> {
        let mut load = Self {
            connections: (0..at_once).map(|_| Connection::new(proxy.address)).collect(),
            request: proxy.request(form).into(),
            reference: Arc::clone(reference),
            spread,
        };
        load.ask(1)
            .await
            .map_err(|bad| format!("{}: {bad}", proxy.subject.name()))?;
        Ok(load)
    }

    /// Asks `repeats` times on every connection.
    pub(crate) async fn run(&mut self, proxy: &Proxy, repeats: usize) -> Result<Spent, String> {
        let before = proxy.process.cpu();
        let started = Instant::now();
        let chunks_received = self
            .ask(repeats)
            .await
            .map_err(|bad| format!("{}: {bad}", proxy.subject.name()))?;
        let elapsed = started.elapsed();
        tokio::time::sleep(SETTLE).await;
        let cpu = proxy.process.cpu().since(&before);
        let answers = (self.connections.len() * repeats) as f64;
        let chunks_sent = answers * self.reference.chunks as f64;
        Ok(Spent {
            cpu,
            answers,
            chunks_sent,
            chunks_received: chunks_received as f64,
            elapsed,
        })
    }

    /// Times that a kept connection had been closed by the proxy.
    pub(crate) fn reopened(&self) -> usize {
        self.connections.iter().map(|connection| connection.reopened).sum()
    }

    async fn ask(&mut self, repeats: usize) -> Result<u64, String> {
        let mut running = JoinSet::new();
        let step = self.spread / u32::try_from(self.connections.len()).expect("a modest number");
        for (place, mut connection) in (0_u32..).zip(self.connections.drain(..)) {
            let (request, reference) = (Arc::clone(&self.request), Arc::clone(&self.reference));
            running.spawn(async move {
                tokio::time::sleep(step * place).await;
                let mut chunks = 0;
                for _ in 0..repeats {
                    match connection.ask(&request, reference.expected()).await {
                        Ok(answer) => chunks += answer.chunks,
                        Err(bad) => return (connection, Err(bad)),
                    }
                }
                (connection, Ok(chunks))
            });
        }
        let (mut chunks, mut complaints) = (0, Vec::new());
        for (connection, result) in running.join_all().await {
            self.connections.push(connection);
            match result {
                Ok(received) => chunks += received,
                Err(bad) => complaints.push(bad),
            }
        }
        if complaints.is_empty() {
            return Ok(chunks);
        }
        let shown = complaints
            .iter()
            .take(COMPLAINTS_MAX)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n  ");
        Err(format!(
            "{} of {} connections got a bad answer:\n  {shown}",
            complaints.len(),
            self.connections.len()
        ))
    }
}

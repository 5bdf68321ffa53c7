//! Small POSTs at even times, in a thread of their own, beside what else happens: how late their answers are complete.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    body::{post, prompt},
    driver::{Connection, Expect},
    gateway::Gateway,
    row::quantile,
};

/// Connections that ask in turn.
const CONNECTIONS: u32 = 16;
/// The time between two POSTs of one connection: 200 a second of all.
const EVERY: Duration = Duration::from_millis(80);

/// POSTs that go on until they are stopped.
pub(crate) struct Probe {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<f64>, String>>,
}

impl Probe {
    /// Begins to ask a gateway.
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let address = gateway.proxy.address;
        let request: Arc<[u8]> = post(&gateway.proxy.key, &[prompt(200)]).into();
        let stop = Arc::clone(&is_stopped);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(ask_all(address, &request, &stop))
        });
        Self { is_stopped, thread }
    }

    /// Asks for some time; the p99 in milliseconds.
    pub(crate) async fn quiet(gateway: &Gateway, length: Duration) -> Result<f64, String> {
        let probe = Self::start(gateway);
        tokio::time::sleep(length).await;
        probe.stop().await
    }

    /// Stops; the p99 of all POSTs in milliseconds.
    pub(crate) async fn stop(self) -> Result<f64, String> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        let late = joined
            .ok()
            .and_then(Result::ok)
            .ok_or("the thread of the POSTs has failed")??;
        quantile(&late, 0.99).ok_or_else(|| "no POST was answered".to_owned())
    }
}

/// How late each answer was, in milliseconds.
async fn ask_all(address: SocketAddr, request: &Arc<[u8]>, stop: &Arc<AtomicBool>) -> Result<Vec<f64>, String> {
    let mut running = JoinSet::new();
    let began = Instant::now();
    for number in 0..CONNECTIONS {
        let (request, stop) = (Arc::clone(request), Arc::clone(stop));
        let mut due = began + EVERY * number / CONNECTIONS;
        running.spawn(async move {
            let (mut connection, mut late) = (Connection::new(address), Vec::new());
            // The first opens the connection.
            connection.ask(&request, Expect::Anything).await?;
            while due < Instant::now() {
                due += EVERY;
            }
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep_until(due.into()).await;
                connection.ask(&request, Expect::Anything).await?;
                late.push(due.elapsed().as_secs_f64() * 1e3);
                due += EVERY;
            }
            Ok::<_, String>(late)
        });
    }
    let mut late = Vec::new();
    for ended in running.join_all().await {
        late.extend(ended.map_err(|bad| format!("a POST beside others: {bad}"))?);
    }
    Ok(late)
}

//! The shutdown: nothing new is accepted, running requests get their time, the rest get an error, and everything is charged.

use std::time::Duration;

use tokio::{sync::watch, task::JoinHandle};

use crate::{
    front::FIRST_REQUEST_WAIT,
    gateway::drain::Drain,
    wiring::{
        process::{self, Phase, ProcessOwner},
        running::{RunningWeir, ServerEnd},
    },
};

/// The time in which requests begin that were accepted just before the gateway closed.
const BEGIN_WAIT: Duration = Duration::from_millis(250);

/// How long connections without requests may stay open. Those of HTTP/1.1 close by themselves, those of HTTP/2 when their client
/// closes them.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The timeout for answers that are cut off to end with their error.
pub(super) const CUT_WAIT: Duration = Duration::from_secs(5);

/// The timeout for Pingora to drop what still runs, and to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// The timeout of each of the last writes: to the store, to the access log.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// The maximum time after the drain: the timeouts above, and what is between them.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

impl RunningWeir {
    /// Serves until its [`Phase`] changes, or a successor serves, and then ends.
    ///
    /// With [`Phase::Draining`], and after a handover, nothing new is accepted, and the end comes with the last running request
    /// or after `[gateway] drain_seconds`; requests that still run then end with their protocol's error. With
    /// [`Phase::Stopping`] they end at once. The other listeners respond until the last request has ended. Every request is
    /// charged.
    pub(crate) fn until_stopped(self) {
        let Self {
            parts,
            background,
            process,
            mut phase,
            drain_time,
            handed_over,
            listeners,
            side_closing,
            predecessor,
            server,
            ..
        } = self;
        let why = background.block_on(wait_for_stop(&mut phase, handed_over));
        parts.drain.close();
        listeners.close();
        parts.money.hurry();
        let close = match why {
            StopReason::Ordered => {
                if process == ProcessOwner::Own {
                    process::stopping(drain_time + AFTER_DRAIN);
                }
                CLOSE_WAIT
            }
            StopReason::HandedOver => {
                // The successor now serves the other listeners.
                side_closing.send_replace(true);
                FIRST_REQUEST_WAIT + CLOSE_WAIT
            }
        };
        let waits = StopTimeouts {
            time: drain_time,
            close,
        };
        background.block_on(drain_requests(phase, &parts.drain, waits, predecessor));
        // Requests on connections that are still open are refused: the server may end much later.
        parts.drain.expire();
        side_closing.send_replace(true);
        background.block_on(end_server(server, &parts.drain));
        background.block_on(parts.money.settle());
        parts.stop.send_replace(true);
        background.block_on(async {
            // Counts that are not published are in the journal, and are published at the next start.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.stability.end()).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.money.end()).await;
            // The store's own budget also bounds these.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.cache_task).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.session_task).await;
        });
        if !parts.sinks.access_log.close(FLUSH_WAIT) {
            tracing::warn!("the last lines of the access log could not be written in time and are lost");
        }
        background.shutdown_timeout(FLUSH_WAIT);
        tracing::info!("stopped");
    }
}

/// The time for running requests, and for connections without requests.
struct StopTimeouts {
    time: Duration,
    close: Duration,
}

/// Why nothing new is accepted.
enum StopReason {
    /// By a signal, or by the server.
    Ordered,
    /// The successor serves.
    HandedOver,
}

/// Waits for the end to begin.
async fn wait_for_stop(phase: &mut watch::Receiver<Phase>, mut handed_over: watch::Receiver<bool>) -> StopReason {
    tokio::select! {
        // The sender lives in the background, so waiting cannot fail.
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => StopReason::Ordered,
        Ok(_) = handed_over.wait_for(|handed_over| *handed_over) => StopReason::HandedOver,
    }
}

/// Waits until nothing runs, here and in the predecessor, or until requests cannot be ended properly. The predecessor may need
/// this process's store, and a service manager kills it when this process has ended.
async fn drain_requests(
    mut phase: watch::Receiver<Phase>,
    drain: &Drain,
    waits: StopTimeouts,
    predecessor: Option<JoinHandle<()>>,
) {
    let StopTimeouts { time, close } = waits;
    tracing::info!(
        running = drain.running(),
        drain_seconds = time.as_secs(),
        "stopping: no new requests are accepted"
    );
    let stopping = async {
        let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
    };
    let all_ended = async {
        wait_until_idle(drain, close).await;
        if let Some(predecessor) = predecessor {
            // It ends by itself, within its own drain time.
            let _ = predecessor.await;
        }
    };
    tokio::select! {
        () = all_ended => return,
        () = stopping => {}
        () = tokio::time::sleep(time) => {}
    }
    let running = drain.running();
    if running > 0 {
        tracing::warn!(
            running,
            "the requests that still run are ended now, each answer with its protocol's error"
        );
    }
    drain.expire();
    if tokio::time::timeout(CUT_WAIT, wait_until_idle(drain, CLOSE_WAIT))
        .await
        .is_err()
    {
        let running = drain.running();
        tracing::warn!(
            running,
            "requests are cut off without an error: their clients do not read"
        );
    }
}

/// Waits until the last request has ended, and its bytes have left the process.
async fn wait_until_idle(drain: &Drain, close: Duration) {
    tokio::time::sleep(BEGIN_WAIT).await;
    drain.requests_ended().await;
    let _ = tokio::time::timeout(close, drain.connections_ended()).await;
    // An HTTP/2 client may have sent a request before it knew of the end.
    drain.requests_ended().await;
}

/// Waits for the server to end its runtimes: that drops the requests that still run, and a dropped request settles its ticket.
/// If the server's owner decides when it ends, waits only as long as requests run.
async fn end_server(server: ServerEnd, drain: &Drain) {
    let ServerEnd { order, mut ended } = server;
    let has_ended = async {
        // A dropped sender counts as the end.
        let _ = ended.wait_for(|ended| *ended).await;
    };
    match order {
        Some(order) => {
            order.send_replace(true);
            if tokio::time::timeout(END_WAIT, has_ended).await.is_err() {
                tracing::warn!("requests were cut before they could be recorded");
            }
        }
        None => tokio::select! {
            () = has_ended => {}
            () = drain.requests_ended() => {}
        },
    }
}

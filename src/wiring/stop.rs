//! Ends the process in order: no further requests are accepted, running requests get time to finish, the others get an error, and
//! everything is charged.

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

/// The time in which requests can still begin that were accepted just before the gateway closed.
const BEGIN_WAIT: Duration = Duration::from_millis(250);

/// How long connections without requests may stay open. HTTP/1.1 connections are closed by weir. HTTP/2 connections are closed
/// when their client closes them.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The time in which answers that are ended early can be completed with an error.
pub(super) const CUT_WAIT: Duration = Duration::from_secs(5);

/// The time in which Pingora must drop everything that still runs, and end.
const END_WAIT: Duration = Duration::from_secs(5);

/// The timeout of each of the last writes, to the store and to the access log.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// The maximum time from the end of the drain to the end of the process. It covers the timeouts above and what happens between
/// them.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

impl RunningWeir {
    /// Serves until the [`Phase`] changes or a successor serves, and then ends.
    ///
    /// In [`Phase::Draining`], and after a handover, no further requests are accepted. The process ends when the last running
    /// request has ended, or after `[gateway] drain_seconds`; requests that still run then end with their protocol's error. In
    /// [`Phase::Stopping`], requests end at once. The other listeners respond until the last request has ended. Every request is
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
                // The other listeners are closed at once, because the successor serves them now.
                side_closing.send_replace(true);
                FIRST_REQUEST_WAIT + CLOSE_WAIT
            }
        };
        let waits = StopTimeouts {
            time: drain_time,
            close,
        };
        background.block_on(drain_requests(phase, &parts.drain, waits, predecessor));
        // Requests that arrive on open connections are refused from here on, because the server may end much later.
        parts.drain.expire();
        side_closing.send_replace(true);
        background.block_on(end_server(server, &parts.drain));
        background.block_on(parts.money.settle());
        parts.stop.send_replace(true);
        background.block_on(async {
            // Counts that are not published in time are in the journal, and are published at the next start.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.stability.end()).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.money.end()).await;
            // The timeouts of the store limit these waits too.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.cache_task).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.session_task).await;
        });
        if !parts.sinks.access_log.close(FLUSH_WAIT) {
            tracing::warn!("cannot write the last lines of the access log in time: they are lost");
        }
        background.shutdown_timeout(FLUSH_WAIT);
        tracing::info!("stopped");
    }
}

/// The maximum time for running requests to finish, and for connections without requests to close.
struct StopTimeouts {
    time: Duration,
    close: Duration,
}

/// Why the process accepts no further requests.
enum StopReason {
    /// A signal or the server has ended it.
    Ordered,
    /// The successor serves.
    HandedOver,
}

/// Waits until the process must end, and returns why.
async fn wait_for_stop(phase: &mut watch::Receiver<Phase>, mut handed_over: watch::Receiver<bool>) -> StopReason {
    tokio::select! {
        // The wait cannot fail, because the sender lives in a background task.
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => StopReason::Ordered,
        Ok(_) = handed_over.wait_for(|handed_over| *handed_over) => StopReason::HandedOver,
    }
}

/// Waits until no request runs here or in the predecessor, or until the remaining requests have to be ended. The predecessor is
/// waited for because it may need this process's store, and because a service manager kills it when this process has ended.
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
            // The wait needs no timeout, because the predecessor ends within its own drain time.
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
            "the time for running requests is over: they are ended now, each with an error of its protocol"
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
            "cannot send errors to the clients of the remaining requests, because they do not read: the requests are ended without an error"
        );
    }
}

/// Waits until the last request has ended, and its bytes have left the process.
async fn wait_until_idle(drain: &Drain, close: Duration) {
    tokio::time::sleep(BEGIN_WAIT).await;
    drain.requests_ended().await;
    let _ = tokio::time::timeout(close, drain.connections_ended()).await;
    // An HTTP/2 client may have sent a request before it learnt that the connection ends.
    drain.requests_ended().await;
}

/// Ends the server, and waits until it has ended its runtimes. That drops all requests that still run, and dropping a request
/// settles its ticket. If the server's owner decides when it ends, waits only until no request runs.
async fn end_server(server: ServerEnd, drain: &Drain) {
    let ServerEnd { order, mut ended } = server;
    let has_ended = async {
        // A dropped sender means that the server has ended.
        let _ = ended.wait_for(|ended| *ended).await;
    };
    match order {
        Some(order) => {
            order.send_replace(true);
            if tokio::time::timeout(END_WAIT, has_ended).await.is_err() {
                tracing::warn!("requests were ended without being recorded, because the server did not end in time");
            }
        }
        None => tokio::select! {
            () = has_ended => {}
            () = drain.requests_ended() => {}
        },
    }
}

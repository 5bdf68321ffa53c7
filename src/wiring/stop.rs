//! The shutdown: nothing new is accepted, running requests get their time, the rest gets an error, and everything is
//! accounted for.

use std::{sync::mpsc::Receiver, time::Duration};

use tokio::sync::watch;

use crate::{
    gateway::drain::Drain,
    wiring::{notify, server::Running, signals::Phase},
};

/// What was accepted a moment before the gateway closed begins within this time.
const BEGIN_WAIT: Duration = Duration::from_millis(250);

/// How long connections may stay open when nothing runs on them any more. Those of HTTP/1.1 close by themselves, those of
/// HTTP/2 when their client has let go.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How long answers that are cut off may take to end with their error.
const CUT_WAIT: Duration = Duration::from_secs(5);

/// How long Pingora may take to drop what still runs then, and to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// How long each of the last writes may take: the store's, the access log's.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// How long all that follows the time for running requests may take: the waits above, and what is between them.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

impl Running {
    /// Serves until a signal ends it. SIGTERM: nothing new is accepted and the end comes with the last running
    /// request, or after `[gateway] drain_seconds`: what still runs then ends with its protocol's error. SIGINT or a second
    /// SIGTERM: that at once. The listeners beside the gateway answer until the last request has ended. Either way every
    /// request is accounted for.
    pub(crate) fn until_stopped(self) {
        let Self {
            parts,
            background,
            phase,
            end,
            server_ended,
            ..
        } = self;
        background.block_on(drained(phase, &parts.drain, parts.config.gateway.drain));
        end.send_replace(true);
        dropped(&server_ended);
        background.block_on(parts.money.settle());
        parts.stop.send_replace(true);
        background.block_on(async {
            // What it lacks is in the journal, and is told at the next start.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.stability.end()).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.money.end()).await;
            // Bounded: the store's own budget ends it.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.cache_task).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.session_task).await;
        });
        parts.sinks.access_log.close(FLUSH_WAIT);
        background.shutdown_timeout(FLUSH_WAIT);
        tracing::info!("stopped");
    }
}

/// Returns when nothing runs any more, or nothing more can be done about it.
async fn drained(mut phase: watch::Receiver<Phase>, drain: &Drain, time: Duration) {
    // The sender lives in the background, so waiting cannot fail.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    drain.close();
    notify::stopping(time + AFTER_DRAIN);
    tracing::info!(
        running = drain.running(),
        seconds = time.as_secs(),
        "stopping: nothing new is taken"
    );
    let stopping = async {
        let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
    };
    tokio::select! {
        () = emptied(drain) => return,
        () = stopping => {}
        () = tokio::time::sleep(time) => {}
    }
    let running = drain.running();
    if running > 0 {
        tracing::warn!(
            running,
            "what still runs is ended now, each answer with its protocol's error"
        );
    }
    drain.cut();
    if tokio::time::timeout(CUT_WAIT, emptied(drain)).await.is_err() {
        let running = drain.running();
        tracing::warn!(
            running,
            "requests are cut off without a word: their clients take no bytes"
        );
    }
}

/// Returns when the last request has ended, and what it wrote has left the process.
async fn emptied(drain: &Drain) {
    tokio::time::sleep(BEGIN_WAIT).await;
    drain.idle().await;
    let _ = tokio::time::timeout(CLOSE_WAIT, drain.disconnected()).await;
    // An HTTP/2 client may have asked for something before it heard of the end.
    drain.idle().await;
}

/// Waits for Pingora to end its runtimes: that drops what still runs, and a dropped request settles its ticket.
fn dropped(server_ended: &Receiver<()>) {
    if server_ended.recv_timeout(END_WAIT).is_err() {
        tracing::warn!("requests were cut before they could be recorded");
    }
}

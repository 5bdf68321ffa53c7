//! The shutdown: nothing new is accepted, running requests get their time, the rest gets an error, and everything is
//! accounted for.

use std::time::Duration;

use tokio::{sync::watch, task::JoinHandle};

use crate::{
    front::FIRST_REQUEST_WAIT,
    gateway::drain::Drain,
    wiring::{
        notify,
        phase::Phase,
        process::Process,
        running::{Running, ServerEnd},
    },
};

/// What was accepted a moment before the gateway closed begins within this time.
const BEGIN_WAIT: Duration = Duration::from_millis(250);

/// How long connections may stay open when nothing runs on them any more. Those of HTTP/1.1 close by themselves, those of
/// HTTP/2 when their client has let go.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How long answers that are cut off may take to end with their error.
pub(super) const CUT_WAIT: Duration = Duration::from_secs(5);

/// How long Pingora may take to drop what still runs then, and to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// How long each of the last writes may take: the store's, the access log's.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// How long all that follows the time for running requests may take: the waits above, and what is between them.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

impl Running {
    /// Serves until its [`Phase`] changes, or another process has taken its place. [`Phase::Draining`] and that: nothing new is
    /// accepted and the end comes with the last running request, or after the time for them (`[gateway] drain_seconds`): what still
    /// runs then ends with its protocol's error. [`Phase::Stopping`]: that at once. The listeners beside the gateway answer until the
    /// last request has ended. Either way every request is accounted for.
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
        let why = background.block_on(begun(&mut phase, handed_over));
        parts.drain.close();
        listeners.close();
        parts.money.hurry();
        let close = match why {
            Why::Told => {
                if process == Process::Own {
                    notify::stopping(drain_time + AFTER_DRAIN);
                }
                CLOSE_WAIT
            }
            Why::HandedOver => {
                // Who looks at this service sees the next process.
                side_closing.send_replace(true);
                FIRST_REQUEST_WAIT + CLOSE_WAIT
            }
        };
        let waits = Waits {
            time: drain_time,
            close,
        };
        background.block_on(drained(phase, &parts.drain, waits, predecessor));
        // What still comes over an open connection is refused: the server may end much later.
        parts.drain.cut();
        side_closing.send_replace(true);
        background.block_on(dropped(server, &parts.drain));
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
        if !parts.sinks.access_log.close(FLUSH_WAIT) {
            tracing::warn!("the last lines of the access log were not taken in time, they are lost");
        }
        background.shutdown_timeout(FLUSH_WAIT);
        tracing::info!("stopped");
    }
}

/// How long is waited for what runs, and for connections on which nothing runs any more.
struct Waits {
    time: Duration,
    close: Duration,
}

/// Why nothing new is taken.
enum Why {
    /// By a signal.
    Told,
    /// Another process serves.
    HandedOver,
}

/// Waits for the end to begin.
async fn begun(phase: &mut watch::Receiver<Phase>, mut handed_over: watch::Receiver<bool>) -> Why {
    tokio::select! {
        // The sender lives in the background, so waiting cannot fail.
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => Why::Told,
        Ok(_) = handed_over.wait_for(|handed_over| *handed_over) => Why::HandedOver,
    }
}

/// Returns when nothing runs any more, here and in the process before, or nothing more can be done about it. That one may need
/// this one's store, and a service manager kills it when this one has ended.
async fn drained(mut phase: watch::Receiver<Phase>, drain: &Drain, waits: Waits, predecessor: Option<JoinHandle<()>>) {
    let Waits { time, close } = waits;
    tracing::info!(
        running = drain.running(),
        seconds = time.as_secs(),
        "stopping: nothing new is taken"
    );
    let stopping = async {
        let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
    };
    let all_ended = async {
        emptied(drain, close).await;
        if let Some(predecessor) = predecessor {
            // It ends by itself, within its own time.
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
            "what still runs is ended now, each answer with its protocol's error"
        );
    }
    drain.cut();
    if tokio::time::timeout(CUT_WAIT, emptied(drain, CLOSE_WAIT))
        .await
        .is_err()
    {
        let running = drain.running();
        tracing::warn!(
            running,
            "requests are cut off without a word: their clients take no bytes"
        );
    }
}

/// Returns when the last request has ended, and what it wrote has left the process.
async fn emptied(drain: &Drain, close: Duration) {
    tokio::time::sleep(BEGIN_WAIT).await;
    drain.idle().await;
    let _ = tokio::time::timeout(close, drain.disconnected()).await;
    // An HTTP/2 client may have asked for something before it heard of the end.
    drain.idle().await;
}

/// Waits for the server to end its runtimes: that drops what still runs, and a dropped request settles its ticket. Where its owner
/// decides when it ends, that is waited for only as long as something runs.
async fn dropped(server: ServerEnd, drain: &Drain) {
    let ServerEnd { order, mut ended } = server;
    let has_ended = async {
        // A sender that is gone has nothing more to say.
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
            () = drain.idle() => {}
        },
    }
}

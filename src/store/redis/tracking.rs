//! The push connection, on which Redis reports changes at once. If it fails, changes are only noticed later, by polling.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, PushKind, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::dialer::connect;
use super::link::{CONNECT_WAIT_MAX, Link, RetryPauses};

/// The interval at which a PING is sent on the push connection.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The timeout of the answer to a PING.
const PING_WAIT_MAX: Duration = Duration::from_millis(500);

/// Tracks the Redis key `version_key` at the master that has this key. The key contains the number of changes in the feed.
/// Notifies `nudge` of each change, and whenever a change may have been missed.
pub(super) async fn follow(link: &Link, version_key: &str, nudge: &Arc<watch::Sender<u64>>) {
    let mut pauses = RetryPauses::new();
    loop {
        if let Some(master) = link.master_of(version_key)
            && let Ok(client) = link.client(&master)
        {
            let lost = Arc::new(Notify::new());
            let connected = timeout(CONNECT_WAIT_MAX, subscribe(&client, version_key, nudge, &lost)).await;
            if let Ok(Ok(connection)) = connected {
                pauses.reset();
                // Changes before the subscription were not pushed.
                nudge_once(nudge);
                tokio::select! {
                    () = until_lost(connection, &lost) => {}
                    () = link.wait_until_elsewhere(version_key, &master) => {}
                }
                tracing::info!(
                    "lost the redis push connection; changes are found by polling until the connection is restored"
                );
                nudge_once(nudge);
            }
        }
        sleep(pauses.next_pause()).await;
    }
}

/// Notifies `nudge` at every change of epoch, because cached entries must be checked again.
pub(super) async fn follow_epochs(mut epochs: watch::Receiver<u64>, nudge: &watch::Sender<u64>) {
    while epochs.changed().await.is_ok() {
        nudge_once(nudge);
    }
}

async fn subscribe(
    client: &Client,
    version_key: &str,
    nudge: &Arc<watch::Sender<u64>>,
    lost: &Arc<Notify>,
) -> RedisResult<MultiplexedConnection> {
    let (nudge, lost) = (Arc::clone(nudge), Arc::clone(lost));
    let on_push = move |kind| match kind {
        PushKind::Invalidate => nudge_once(&nudge),
        PushKind::Disconnection => lost.notify_one(),
        _ => {}
    };
    let mut connection = connect(client, on_push).await?;
    let mut track = ::redis::cmd("CLIENT");
    track
        .arg("TRACKING")
        .arg("ON")
        .arg("BCAST")
        .arg("PREFIX")
        .arg(version_key);
    track.exec_async(&mut connection).await?;
    Ok(connection)
}

async fn until_lost(mut connection: MultiplexedConnection, lost: &Notify) {
    let pings = async {
        loop {
            sleep(PING_EVERY).await;
            let ping = ::redis::cmd("PING");
            if !matches!(
                timeout(PING_WAIT_MAX, ping.exec_async(&mut connection)).await,
                Ok(Ok(()))
            ) {
                return;
            }
        }
    };
    tokio::select! {
        () = lost.notified() => {}
        () = pings => {}
    }
}

fn nudge_once(nudge: &watch::Sender<u64>) {
    nudge.send_modify(|count| *count = count.wrapping_add(1));
}

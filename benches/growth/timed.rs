//! Small requests for a given time, as fast as they go or at a pace.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    driver::{Connection, Expect},
    reference::Reference,
};

/// A connection that asks.
pub(crate) struct Asker {
    pub(crate) connection: Connection,
    /// What it asks, in turn.
    pub(crate) requests: Vec<Vec<u8>>,
}

/// Lets each ask everything that it has once; how many answers there were. Each is compared.
pub(crate) async fn once(askers: &mut Vec<Asker>, reference: &Arc<Reference>) -> Result<u64, String> {
    let mut running = JoinSet::new();
    for mut asker in askers.drain(..) {
        let reference = Arc::clone(reference);
        running.spawn(async move {
            for request in &asker.requests {
                asker.connection.ask(request, Expect::Whole(&reference.body)).await?;
            }
            Ok::<_, String>(asker)
        });
    }
    let mut answers = 0;
    for ended in running.join_all().await {
        let asker = ended?;
        answers += asker.requests.len() as u64;
        askers.push(asker);
    }
    Ok(answers)
}

/// Lets all ask for some time, each `every` so often, or again at once; how many answers there were. Each is compared.
pub(crate) async fn ask(
    askers: &mut Vec<Asker>,
    reference: &Arc<Reference>,
    length: Duration,
    every: Option<Duration>,
) -> Result<u64, String> {
    let (mut running, count) = (JoinSet::new(), askers.len() as u32);
    let began = Instant::now();
    for (number, mut asker) in askers.drain(..).enumerate() {
        let reference = Arc::clone(reference);
        running.spawn(async move {
            let mut due = began + every.unwrap_or_default() * number as u32 / count;
            let mut answers = 0;
            for turn in 0.. {
                if every.is_some() {
                    tokio::time::sleep_until(due.into()).await;
                }
                if began.elapsed() >= length {
                    break;
                }
                let request = &asker.requests[turn % asker.requests.len()];
                asker.connection.ask(request, Expect::Whole(&reference.body)).await?;
                answers += 1;
                due += every.unwrap_or_default();
            }
            Ok::<_, String>((asker, answers))
        });
    }
    let mut answers = 0;
    for ended in running.join_all().await {
        let (asker, of_this) = ended?;
        askers.push(asker);
        answers += of_this;
    }
    Ok(answers)
}

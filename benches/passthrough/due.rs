//! Requests at set times. Each goes when it is due, whatever has become of those before it, and is measured from when it was due: a
//! proxy that stops answering for a while does not slow down those who ask it, so none of the delays is left out.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinSet,
};

use crate::{driver::Connection, reference::Reference};

/// Until the first request is due.
const AHEAD: Duration = Duration::from_millis(20);

/// Something that is asked.
pub(crate) struct Asked {
    pub(crate) request: Arc<[u8]>,
    pub(crate) reference: Arc<Reference>,
}

/// When an answer came, in milliseconds after its request was due.
pub(crate) struct Came {
    /// Which of those that are asked it was.
    pub(crate) which: usize,
    /// The first byte of the body.
    pub(crate) first_byte: f64,
    /// The end of each delta, of a stream.
    pub(crate) deltas: Vec<f64>,
}

/// Somebody who is asked, with the connections that are free.
pub(crate) struct Address {
    address: SocketAddr,
    free: Arc<Mutex<Vec<Connection>>>,
}

impl Address {
    /// Without a connection yet.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            free: Arc::default(),
        }
    }

    /// Asks `count` times, `every` so often, on connections that are free or new ones. `which` says what is asked of `asked`.
    pub(crate) async fn ask(
        &self,
        asked: &[Asked],
        which: impl Fn(usize) -> usize,
        every: Duration,
        count: usize,
    ) -> Result<Vec<Came>, String> {
        let mut running = JoinSet::new();
        let mut due = due(every, count);
        while let Some((number, at)) = due.recv().await {
            let which = which(number);
            let (request, reference) = (Arc::clone(&asked[which].request), Arc::clone(&asked[which].reference));
            let (address, free) = (self.address, Arc::clone(&self.free));
            running.spawn(async move {
                let kept = free.lock().pop();
                let mut connection = kept.unwrap_or_else(|| Connection::new(address));
                let came = ask_one(&mut connection, &request, &reference, which, at).await?;
                free.lock().push(connection);
                Ok(came)
            });
        }
        running.join_all().await.into_iter().collect()
    }
}

async fn ask_one(
    connection: &mut Connection,
    request: &[u8],
    reference: &Reference,
    which: usize,
    due: Instant,
) -> Result<Came, String> {
    let (mut first_byte, mut deltas) = (None, Vec::with_capacity(reference.delta_ends.len()));
    let mut seen = |progress: crate::driver::Progress| {
        let since = progress.at.duration_since(due).as_secs_f64() * 1e3;
        first_byte.get_or_insert(since);
        while reference
            .delta_ends
            .get(deltas.len())
            .is_some_and(|end| *end <= progress.bytes)
        {
            deltas.push(since);
        }
    };
    connection.watch(request, reference.expected(), &mut seen).await?;
    let first_byte = first_byte.ok_or("the body is empty")?;
    Ok(Came {
        which,
        first_byte,
        deltas,
    })
}

/// The numbers of requests, each when it is due. A thread of its own waits for that: the runtime's timer is exact to a millisecond.
fn due(every: Duration, count: usize) -> UnboundedReceiver<(usize, Instant)> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut at = Instant::now() + AHEAD;
        for number in 0..count {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if tell.send((number, at)).is_err() {
                break;
            }
            at += every;
        }
    });
    told
}

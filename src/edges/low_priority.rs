//! A pool of low-priority threads, for long work that must not delay other requests.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The nice value of the pool's threads (`nice(2)`). Under load, each gets about a tenth of the processor time of a normal
/// thread.
const NICE: i32 = 10;
/// The highest nice value. Under load, such a thread gets about a seventieth of the processor time of a normal thread.
const NICEST: i32 = 19;

/// Error: the work was not completed, because it panicked or because no thread could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDone;

type Work = Box<dyn FnOnce() + Send>;

/// A pool of a few low-priority threads. Clones share the threads. The threads end when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct LowPriorityThreads {
    threads: Arc<[mpsc::Sender<Work>]>,
    /// The numbers of the idle threads. The thread with the lowest number gets the next work, so that sequential work reuses the
    /// memory of one thread.
    idle: Arc<Mutex<BTreeSet<usize>>>,
    /// One permit for each idle thread. Work is given only to an idle thread. So if a caller stops waiting before a thread is
    /// idle, its work never begins.
    free: Arc<Semaphore>,
}

/// A busy thread. It becomes idle when this is dropped.
struct ThreadTurn {
    thread: usize,
    idle: Arc<Mutex<BTreeSet<usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl LowPriorityThreads {
    /// Starts `threads` threads, but at least one.
    pub(crate) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let thread = |_| {
            let (work, waiting) = mpsc::channel();
            let builder = std::thread::Builder::new().name("weir-low".to_owned());
            builder.spawn(move || run_queue(&waiting)).ok().map(|_| work)
        };
        // If the system refuses to start some of the threads, the others do all the work.
        let threads: Arc<[_]> = (0..threads).filter_map(thread).collect();
        let free = Semaphore::new(threads.len());
        if threads.is_empty() {
            // Without a single thread, every call of `run` fails at once.
            free.close();
        }
        Self {
            idle: Arc::new(Mutex::new((0..threads.len()).collect())),
            threads,
            free: Arc::new(free),
        }
    }

    /// Runs `work` as soon as a thread is idle, and returns its result.
    ///
    /// # Errors
    /// [`NotDone`]: the work panicked, or there is no thread.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
        let free = Arc::clone(&self.free);
        let permit = free.acquire_owned().await.map_err(|_| NotDone)?;
        let thread = self.idle.lock().pop_first().ok_or(NotDone)?;
        let turn = ThreadTurn {
            thread,
            idle: Arc::clone(&self.idle),
            _permit: permit,
        };
        let (done, result) = oneshot::channel();
        let work = move || {
            let output = catch_unwind(AssertUnwindSafe(work));
            // The turn is kept until the work is done, even if the caller has stopped waiting. It is dropped before the result is
            // sent, so that the caller then finds the thread idle.
            drop(turn);
            if let Ok(output) = output {
                let _ = done.send(output);
            }
        };
        let to = self.threads.get(thread).ok_or(NotDone)?;
        to.send(Box::new(work)).map_err(|_| NotDone)?;
        result.await.map_err(|_| NotDone)
    }
}

/// Permanently gives the calling thread the lowest priority, for work that no request ever waits for.
pub(crate) fn lower_this_thread() {
    lower_priority(NICEST);
}

fn lower_priority(by: i32) {
    // If this fails, the work is still done, at normal priority.
    let _ = rustix::process::nice(by);
}

impl Drop for ThreadTurn {
    fn drop(&mut self) {
        self.idle.lock().insert(self.thread);
    }
}

/// The main function of a thread: runs the received work until all senders are dropped.
fn run_queue(waiting: &mpsc::Receiver<Work>) {
    lower_priority(NICE);
    while let Ok(work) = waiting.recv() {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_at_low_priority_and_comes_back() {
        let low = LowPriorityThreads::new(1);
        let here = rustix::process::getpriority_process(None).unwrap();
        let there = low.run(|| rustix::process::getpriority_process(None)).await.unwrap();
        assert_eq!(there.unwrap(), (here + NICE).min(19));
        assert_eq!(
            rustix::process::getpriority_process(None).unwrap(),
            here,
            "no other thread is slower for it"
        );
    }

    #[test]
    fn a_thread_can_be_of_the_lowest_priority() {
        let lowered = std::thread::spawn(|| {
            lower_this_thread();
            rustix::process::getpriority_process(None)
        });
        assert_eq!(lowered.join().unwrap().unwrap(), NICEST);
    }

    #[tokio::test]
    async fn what_is_done_one_after_the_other_stays_on_one_thread_and_what_is_done_together_does_not() {
        let low = LowPriorityThreads::new(2);
        let here = || std::thread::current().id();
        let first = low.run(here).await.unwrap();
        for _ in 0..10 {
            assert_eq!(low.run(here).await, Ok(first));
        }
        let both = Arc::new(std::sync::Barrier::new(2));
        let meet = || {
            let both = Arc::clone(&both);
            move || both.wait().is_leader()
        };
        let (one, other) = tokio::join!(low.run(meet()), low.run(meet()));
        assert_ne!(one.unwrap(), other.unwrap(), "one alone would wait for ever");
    }

    #[tokio::test]
    async fn a_panic_costs_one_piece_of_work() {
        let low = LowPriorityThreads::new(1);
        assert_eq!(low.run(|| -> u8 { panic!("on purpose") }).await, Err(NotDone));
        assert_eq!(low.run(|| 8).await, Ok(8), "its thread is free again");
    }

    #[tokio::test]
    async fn what_nobody_waits_for_never_begins() {
        let low = LowPriorityThreads::new(1);
        let (go, wait) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let low = low.clone();
            async move { low.run(move || wait.recv()).await }
        });
        while low.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (begun, begins) = mpsc::channel::<()>();
        {
            let second = low.run(move || drop(begun));
            tokio::select! {
                biased;
                _ = second => panic!("it did not wait"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(
            matches!(begins.try_recv(), Err(mpsc::TryRecvError::Disconnected)),
            "its work is gone"
        );
        go.send(()).unwrap();
        assert!(matches!(first.await.unwrap(), Ok(Ok(()))));
    }
}

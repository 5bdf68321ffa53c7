//! Threads that leave the processors to others: for long work that somebody else's requests must not wait for.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How nice the threads are (`nice(2)`): under load they get about a tenth of what a thread of the others gets.
const NICE: i32 = 10;
/// As nice as can be: under load about a seventieth.
const NICEST: i32 = 19;

/// The work was not done: it panicked, or there can be no thread for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDone;

type Work = Box<dyn FnOnce() + Send>;

/// A few threads of low priority, which end with the last clone. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LowPriority {
    threads: Arc<[mpsc::Sender<Work>]>,
    /// Those that have nothing to do. The first of them does what comes next, so that what is done one after the other uses the memory
    /// of one thread again.
    idle: Arc<Mutex<BTreeSet<usize>>>,
    /// Work begins when there is a thread for it, so that what nobody waits for any more never begins.
    free: Arc<Semaphore>,
}

/// A thread at work, which is idle again when it is dropped.
struct Turn {
    thread: usize,
    idle: Arc<Mutex<BTreeSet<usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl LowPriority {
    /// At most `threads` of them, at least one.
    pub(crate) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let thread = |_| {
            let (work, waiting) = mpsc::channel();
            let builder = std::thread::Builder::new().name("weir-low".to_owned());
            builder.spawn(move || do_all(&waiting)).ok().map(|_| work)
        };
        // Fewer do what there is if there cannot be all of them.
        let threads: Arc<[_]> = (0..threads).filter_map(thread).collect();
        let free = Semaphore::new(threads.len());
        if threads.is_empty() {
            // Who wants work done is told that nobody does it.
            free.close();
        }
        Self {
            idle: Arc::new(Mutex::new((0..threads.len()).collect())),
            threads,
            free: Arc::new(free),
        }
    }

    /// Does `work` as soon as a thread is free.
    ///
    /// # Errors
    /// [`NotDone`]: it panicked, or there is no thread.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
        let free = Arc::clone(&self.free);
        let permit = free.acquire_owned().await.map_err(|_| NotDone)?;
        let thread = self.idle.lock().pop_first().ok_or(NotDone)?;
        let turn = Turn {
            thread,
            idle: Arc::clone(&self.idle),
            _permit: permit,
        };
        let (done, result) = oneshot::channel();
        let work = move || {
            let output = catch_unwind(AssertUnwindSafe(work));
            // Kept until the work is done, also if nobody waits for it any more; and whoever waits finds this thread idle.
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

/// Makes the thread that calls it one of the lowest priority, for good: for what nobody's request ever waits for.
pub(crate) fn lower_this_thread() {
    be_nice(NICEST);
}

fn be_nice(by: i32) {
    // Without it the work is done all the same, only less politely.
    let _ = rustix::process::nice(by);
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.idle.lock().insert(self.thread);
    }
}

/// A thread's life: takes what is next, until nobody can send anything any more.
fn do_all(waiting: &mpsc::Receiver<Work>) {
    be_nice(NICE);
    while let Ok(work) = waiting.recv() {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_at_low_priority_and_comes_back() {
        let low = LowPriority::new(1);
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
        let low = LowPriority::new(2);
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
        let low = LowPriority::new(1);
        assert_eq!(low.run(|| -> u8 { panic!("on purpose") }).await, Err(NotDone));
        assert_eq!(low.run(|| 8).await, Ok(8), "its thread is free again");
    }

    #[tokio::test]
    async fn what_nobody_waits_for_never_begins() {
        let low = LowPriority::new(1);
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

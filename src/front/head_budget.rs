//! The budget for what connections hold of requests whose heads have not come to their end: all that is known of them then is an
//! address.
//!
//! A small head is always read, and not counted: connections have a limit of their own. Larger ones count, in all and per
//! address. Where a limit is exceeded the largest give way, and of those that are as large as each other the oldest: whoever
//! holds much for long loses it, and who sends a head at once is through before that.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::{config::connections::HeadsConfig, domain::wire::http2::Unfinished, edges::limiter::client::Client};

#[cfg(test)]
mod tests;

/// The most bytes of a head that is always read.
pub(crate) const SMALL_HEAD_BYTES: usize = 4096;

/// The most memory for each byte of a head over HTTP/2 that is decoded before its end: a field that takes one byte there
/// (RFC 7541 section 6.1) is an entry of a table here.
const DECODED_BYTES_PER_BYTE: u64 = 112;

/// The heads that are held. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct HeadBudget {
    limits: HeadsConfig,
    held: Arc<Mutex<Held>>,
}

/// A head's place among others: by its size, and among equals by its age.
type Rank = (u64, Reverse<u64>);

#[derive(Debug, Default)]
struct Held {
    /// The number of the next head.
    next: u64,
    heads: HashMap<u64, Head, ahash::RandomState>,
    all: Ranked,
    /// Only of addresses that have a head.
    by_address: HashMap<Client, Ranked, ahash::RandomState>,
}

#[derive(Debug)]
struct Head {
    address: Option<Client>,
    bytes: u64,
    waker: Option<Waker>,
}

/// Heads in order, and what they have together.
#[derive(Debug, Default)]
struct Ranked {
    bytes: u64,
    order: BTreeSet<Rank>,
}

impl Ranked {
    fn add(&mut self, rank: Rank) {
        self.bytes += rank.0;
        self.order.insert(rank);
    }

    fn remove(&mut self, rank: Rank) {
        self.bytes = self.bytes.saturating_sub(rank.0);
        self.order.remove(&rank);
    }

    /// The head that gives way first, if they have more than they may.
    fn first_to_go(&self, bytes_max: u64) -> Option<u64> {
        let largest = self.order.last().filter(|_| self.bytes > bytes_max)?;
        Some(largest.1.0)
    }
}

impl Held {
    /// Takes a head out, and returns what it had.
    fn remove(&mut self, number: u64) -> Option<Head> {
        let head = self.heads.remove(&number)?;
        let rank = (head.bytes, Reverse(number));
        self.all.remove(rank);
        if let Some(address) = head.address
            && let Some(of_address) = self.by_address.get_mut(&address)
        {
            of_address.remove(rank);
            if of_address.order.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(head)
    }

    fn insert(&mut self, number: u64, head: Head) {
        let rank = (head.bytes, Reverse(number));
        self.all.add(rank);
        if let Some(address) = head.address {
            self.by_address.entry(address).or_default().add(rank);
        }
        self.heads.insert(number, head);
    }

    /// The head that gives way, after one of this address has grown.
    fn first_to_go(&self, address: Option<Client>, limits: &HeadsConfig) -> Option<u64> {
        let of_address = address.and_then(|address| self.by_address.get(&address));
        let of_address = of_address.and_then(|heads| heads.first_to_go(limits.address_bytes_max));
        of_address.or_else(|| self.all.first_to_go(limits.bytes_max))
    }
}

impl HeadBudget {
    /// Nothing is held yet.
    pub(crate) fn new(limits: HeadsConfig) -> Self {
        Self {
            limits,
            held: Arc::default(),
        }
    }

    /// For the heads of a connection from this address; `None` for one that speaks for many. It holds nothing yet.
    pub(crate) fn lease(&self, address: Option<Client>) -> HeadLease {
        HeadLease {
            budget: self.clone(),
            address,
            number: None,
        }
    }

    /// The bytes held now.
    pub(crate) fn in_use(&self) -> u64 {
        self.held.lock().all.bytes
    }
}

/// Its connection is to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveWay;

/// What a connection holds of the budget; given back on drop.
#[derive(Debug)]
pub(crate) struct HeadLease {
    budget: HeadBudget,
    address: Option<Client>,
    /// Its head, while that is not small. It is in the budget until it gives way.
    number: Option<u64>,
}

impl HeadLease {
    /// So much has come of a head. Never waits, and locks nothing while the head is small.
    ///
    /// # Errors
    /// It gives way: nothing of it may be held any more.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), GaveWay> {
        match bytes <= SMALL_HEAD_BYTES {
            true => {
                self.release();
                Ok(())
            }
            false => self.count(bytes as u64),
        }
    }

    /// The same of a head over HTTP/2.
    ///
    /// # Errors
    /// It gives way: nothing of it may be held any more.
    pub(crate) fn hold_http2(&mut self, unfinished: Unfinished) -> Result<(), GaveWay> {
        let decoded = (unfinished.block as u64).saturating_mul(DECODED_BYTES_PER_BYTE);
        let decoded = decoded.min(self.budget.limits.head_bytes_max);
        self.hold(
            unfinished
                .frame
                .saturating_add(usize::try_from(decoded).unwrap_or(usize::MAX)),
        )
    }

    /// Whether it has given way; otherwise the task is woken when it does.
    pub(crate) fn poll_gave_way(&self, cx: &Context<'_>) -> Poll<GaveWay> {
        let Some(number) = self.number else {
            return Poll::Pending;
        };
        let mut held = self.budget.held.lock();
        let Some(head) = held.heads.get_mut(&number) else {
            return Poll::Ready(GaveWay);
        };
        match &mut head.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Nothing is held any more: the head has come to its end, or is not wanted.
    pub(crate) fn release(&mut self) {
        if let Some(number) = self.number.take() {
            self.budget.held.lock().remove(number);
        }
    }

    fn count(&mut self, bytes: u64) -> Result<(), GaveWay> {
        let mut gone = Vec::new();
        let mut held = self.budget.held.lock();
        let (number, waker) = match self.number {
            Some(number) => (number, held.remove(number).ok_or(GaveWay)?.waker),
            None => {
                held.next += 1;
                (held.next, None)
            }
        };
        self.number = Some(number);
        let address = self.address;
        held.insert(number, Head { address, bytes, waker });
        while let Some(largest) = held.first_to_go(address, &self.budget.limits) {
            gone.extend(held.remove(largest).and_then(|head| head.waker));
        }
        let stays = held.heads.contains_key(&number);
        drop(held);
        gone.into_iter().for_each(Waker::wake);
        stays.then_some(()).ok_or(GaveWay)
    }
}

impl Drop for HeadLease {
    fn drop(&mut self) {
        self.release();
    }
}

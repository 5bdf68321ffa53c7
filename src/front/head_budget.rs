//! The budget for the memory of unfinished heads. While a head is unfinished, nothing but the client's address is known about its
//! request.
//!
//! A head of up to [`SMALL_HEAD_BYTES`] is always read and not counted, because the number of connections is limited anyway.
//! Larger heads count towards two limits: one for all heads, and one for the heads of their address. When a limit is exceeded,
//! the largest head gives way: its bytes are discarded, and its connection is closed. Among equally large heads, the oldest gives
//! way. So a head that occupies much memory for a long time gives way. A head that arrives quickly is complete before that.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::{config::limits::HeadsConfig, domain::wire::http2::UnfinishedHead, edges::limiter::ClientAddress};

#[cfg(test)]
mod tests;

/// The maximum size in bytes of a head that is always read and not counted.
pub(crate) const SMALL_HEAD_BYTES: usize = 4096;

/// The maximum number of bytes of memory per received byte of an HTTP/2 head. A head is decoded while it arrives, and a field of
/// one byte (RFC 7541 section 6.1) becomes an entry of a table.
const DECODED_BYTES_PER_BYTE: u64 = 112;

/// The memory budget for the unfinished request heads of all connections. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct HeadBudget {
    limits: HeadsConfig,
    held: Arc<Mutex<HeadTable>>,
}

/// The order in which heads give way: by size, and among equally large heads by age. The head with the highest rank gives way
/// first.
type Rank = (u64, Reverse<u64>);

#[derive(Debug, Default)]
struct HeadTable {
    /// The number of the most recently counted head.
    next: u64,
    heads: HashMap<u64, CountedHead, ahash::RandomState>,
    all: RankedHeads,
    /// The heads of each address. Contains only addresses with a counted head.
    by_address: HashMap<ClientAddress, RankedHeads, ahash::RandomState>,
}

#[derive(Debug)]
struct CountedHead {
    address: Option<ClientAddress>,
    bytes: u64,
    waker: Option<Waker>,
}

/// Heads in the order of their ranks, and the sum of their bytes.
#[derive(Debug, Default)]
struct RankedHeads {
    bytes: u64,
    order: BTreeSet<Rank>,
}

impl RankedHeads {
    fn add(&mut self, rank: Rank) {
        self.bytes += rank.0;
        self.order.insert(rank);
    }

    fn remove(&mut self, rank: Rank) {
        self.bytes = self.bytes.saturating_sub(rank.0);
        self.order.remove(&rank);
    }

    /// Returns the number of the head that gives way next; `None` if the heads together have at most `bytes_max` bytes.
    fn next_to_give_way(&self, bytes_max: u64) -> Option<u64> {
        let largest = self.order.last().filter(|_| self.bytes > bytes_max)?;
        Some(largest.1.0)
    }
}

impl HeadTable {
    fn remove(&mut self, number: u64) -> Option<CountedHead> {
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

    fn insert(&mut self, number: u64, head: CountedHead) {
        let rank = (head.bytes, Reverse(number));
        self.all.add(rank);
        if let Some(address) = head.address {
            self.by_address.entry(address).or_default().add(rank);
        }
        self.heads.insert(number, head);
    }

    /// Returns the number of the head that gives way after a head of this address has grown; `None` if no limit is exceeded.
    fn next_to_give_way(&self, address: Option<ClientAddress>, limits: &HeadsConfig) -> Option<u64> {
        let of_address = address.and_then(|address| self.by_address.get(&address));
        let of_address = of_address.and_then(|heads| heads.next_to_give_way(limits.address_bytes_max));
        of_address.or_else(|| self.all.next_to_give_way(limits.bytes_max))
    }
}

impl HeadBudget {
    /// Creates an unused budget.
    pub(crate) fn new(limits: HeadsConfig) -> Self {
        Self {
            limits,
            held: Arc::default(),
        }
    }

    /// Creates an empty lease for a connection from this address. `address` is `None` for a peer that represents many clients.
    pub(crate) fn lease(&self, address: Option<ClientAddress>) -> HeadLease {
        HeadLease {
            budget: self.clone(),
            address,
            number: None,
        }
    }

    /// The number of bytes that are counted now.
    pub(crate) fn in_use(&self) -> u64 {
        self.held.lock().all.bytes
    }
}

/// The error of a head that has to give way to others. Its connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadBudgetExhausted;

/// The part of the budget that one connection occupies; returned on drop.
#[derive(Debug)]
pub(crate) struct HeadLease {
    budget: HeadBudget,
    address: Option<ClientAddress>,
    /// The number of the connection's head; `None` while no head is counted. If the head's bytes are discarded to make room for
    /// other heads, the number stays.
    number: Option<u64>,
}

impl HeadLease {
    /// Records that the head has `bytes` bytes now. Never waits, and takes no lock while the head is small.
    ///
    /// # Errors
    /// The head gives way, so its bytes must be discarded.
    pub(crate) fn set_size(&mut self, bytes: usize) -> Result<(), HeadBudgetExhausted> {
        match bytes <= SMALL_HEAD_BYTES {
            true => {
                self.release();
                Ok(())
            }
            false => self.set_counted_size(bytes as u64),
        }
    }

    /// Does the same as [`HeadLease::set_size`] for a head over HTTP/2, with the memory that the head's decoded fields occupy.
    ///
    /// # Errors
    /// The head gives way, so its bytes must be discarded.
    pub(crate) fn set_http2_size(&mut self, unfinished: UnfinishedHead) -> Result<(), HeadBudgetExhausted> {
        let decoded = (unfinished.block as u64).saturating_mul(DECODED_BYTES_PER_BYTE);
        let decoded = decoded.min(self.budget.limits.head_bytes_max);
        self.set_size(
            unfinished
                .frame
                .saturating_add(usize::try_from(decoded).unwrap_or(usize::MAX)),
        )
    }

    /// Returns `Ready` if the head has given way. Otherwise, the task is woken when the head gives way.
    pub(crate) fn poll_gave_way(&self, cx: &Context<'_>) -> Poll<HeadBudgetExhausted> {
        let Some(number) = self.number else {
            return Poll::Pending;
        };
        let mut held = self.budget.held.lock();
        let Some(head) = held.heads.get_mut(&number) else {
            return Poll::Ready(HeadBudgetExhausted);
        };
        match &mut head.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns the head's bytes to the budget, because the head is complete or discarded.
    pub(crate) fn release(&mut self) {
        if let Some(number) = self.number.take() {
            self.budget.held.lock().remove(number);
        }
    }

    fn set_counted_size(&mut self, bytes: u64) -> Result<(), HeadBudgetExhausted> {
        let mut gone = Vec::new();
        let mut held = self.budget.held.lock();
        let (number, waker) = match self.number {
            Some(number) => (number, held.remove(number).ok_or(HeadBudgetExhausted)?.waker),
            None => {
                held.next += 1;
                (held.next, None)
            }
        };
        self.number = Some(number);
        let address = self.address;
        held.insert(number, CountedHead { address, bytes, waker });
        while let Some(largest) = held.next_to_give_way(address, &self.budget.limits) {
            gone.extend(held.remove(largest).and_then(|head| head.waker));
        }
        let stays = held.heads.contains_key(&number);
        drop(held);
        gone.into_iter().for_each(Waker::wake);
        stays.then_some(()).ok_or(HeadBudgetExhausted)
    }
}

impl Drop for HeadLease {
    fn drop(&mut self) {
        self.release();
    }
}

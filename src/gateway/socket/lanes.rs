//! The lanes of a socket. Requests with the same `stream_id` form a lane and run one after the other; lanes run in parallel, up
//! to a limit. One request of each lane can wait. The waiting request can start after the last frame of the previous request's
//! answer, even if the provider has not ended the exchange of the previous request.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use bytes::Bytes;
use smol_str::SmolStr;
use tokio::sync::mpsc;

use crate::{domain::faults::refusal::Refusal, gateway::turn_link::TurnMessage};

/// The maximum number of named lanes of a socket.
pub(crate) const NAMED_LANES_MAX: u8 = 32;

/// The maximum number of waiting requests of a socket.
pub(crate) const WAITING_MAX: usize = 16;

/// The maximum number of requests that have not ended, as a multiple of `running_max`. It is greater than 1, because a request no
/// longer counts as running after the last frame of its answer, although it may not have ended yet.
const UNENDED_FACTOR: usize = 2;

/// A request whose message is complete.
#[derive(Debug)]
pub(crate) struct ReadyTurn {
    /// The lane's number on its socket; 0 is the default lane.
    pub lane: u8,
    /// The lane's name; `None` for the default lane.
    pub stream_id: Option<SmolStr>,
    /// The length of the message in bytes, even if the message is refused.
    pub length: u64,
    /// The message. If it was not stored, this is the refusal that is sent to the client instead.
    pub content: Result<TurnMessage, Refusal>,
}

/// A piece of an answer, which consists of complete frames.
#[derive(Debug)]
pub(crate) struct TurnPiece {
    pub frames: Bytes,
    /// The answer's HTTP status if the last frame is among `frames`; otherwise `None`.
    pub end: Option<u16>,
    /// Whether the answer is weir's refusal of an invalid key. False until the last frame.
    pub is_key_refused: bool,
}

/// A request that has not ended.
#[derive(Debug)]
struct RunningTurn {
    lane: u8,
    stream_id: Option<SmolStr>,
    pieces: mpsc::Receiver<TurnPiece>,
    /// Whether the last frame of the answer has arrived.
    is_told: bool,
}

/// An event of a running request.
#[derive(Debug)]
pub(crate) enum LaneEvent {
    /// Frames for the client.
    Piece(TurnPiece),
    /// The request has ended and is recorded.
    Ended {
        stream_id: Option<SmolStr>,
        /// Whether the client has received the last frame of an answer.
        is_told: bool,
    },
}

/// The lanes of one socket.
#[derive(Debug)]
pub(crate) struct SocketLanes {
    /// The names of the named lanes. The first named lane has the number 1.
    names: Vec<SmolStr>,
    running: Vec<RunningTurn>,
    waiting: VecDeque<ReadyTurn>,
    running_max: usize,
    /// The index of the running request that is polled first. It advances, so that every request gets its turn.
    next: usize,
}

impl SocketLanes {
    /// Creates the lanes of a new socket, on which at most `running_max` requests run at one time.
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            names: Vec::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            running_max,
            next: 0,
        }
    }

    /// Returns the number of the lane with this name; `None` if there are too many lanes. Adds the lane if it is new. The default
    /// lane has no name.
    pub(crate) fn number(&mut self, name: Option<&str>) -> Option<u8> {
        let Some(name) = name else { return Some(0) };
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or(self.names.len());
        let number = u8::try_from(index + 1)
            .ok()
            .filter(|number| *number <= NAMED_LANES_MAX)?;
        if known.is_none() {
            self.names.push(SmolStr::new(name));
        }
        Some(number)
    }

    /// Accepts a request. Returns the request if it has to be started at once; `None` if it waits.
    ///
    /// # Errors
    /// Returns the request if it can neither be started nor wait.
    pub(crate) fn offer(&mut self, turn: ReadyTurn) -> Result<Option<ReadyTurn>, Box<ReadyTurn>> {
        let is_waiting = self.waiting.iter().any(|other| other.lane == turn.lane);
        if !is_waiting && self.has_place(turn.lane) {
            return Ok(Some(turn));
        }
        if is_waiting || self.waiting.len() >= WAITING_MAX {
            return Err(Box::new(turn));
        }
        self.waiting.push_back(turn);
        Ok(None)
    }

    /// Adds a request that has been started.
    pub(crate) fn add(&mut self, lane: u8, stream_id: Option<SmolStr>, pieces: mpsc::Receiver<TurnPiece>) {
        self.running.push(RunningTurn {
            lane,
            stream_id,
            pieces,
            is_told: false,
        });
    }

    /// Removes and returns the first waiting request that can be started now; `None` if none can.
    pub(crate) fn take_ready(&mut self) -> Option<ReadyTurn> {
        let first = self.waiting.iter().position(|turn| self.has_place(turn.lane))?;
        self.waiting.remove(first)
    }

    /// Removes and returns the first waiting request, so that it is not started. Returns `None` if no request waits.
    pub(crate) fn take_waiting(&mut self) -> Option<ReadyTurn> {
        self.waiting.pop_front()
    }

    /// Whether no request is running or waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether the last frame of every running request has arrived.
    pub(crate) fn has_told_all(&self) -> bool {
        self.running.iter().all(|turn| turn.is_told)
    }

    /// Returns the next event of a running request.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<LaneEvent> {
        let count = self.running.len();
        for offset in 0..count {
            let index = (self.next + offset) % count;
            let Some(turn) = self.running.get_mut(index) else {
                continue;
            };
            match turn.pieces.poll_recv(cx) {
                Poll::Pending => {}
                Poll::Ready(Some(piece)) => {
                    turn.is_told |= piece.end.is_some();
                    self.next = index + 1;
                    return Poll::Ready(LaneEvent::Piece(piece));
                }
                Poll::Ready(None) => {
                    let RunningTurn { stream_id, is_told, .. } = self.running.swap_remove(index);
                    return Poll::Ready(LaneEvent::Ended { stream_id, is_told });
                }
            }
        }
        Poll::Pending
    }

    /// Whether a request of this lane can be started now.
    fn has_place(&self, lane: u8) -> bool {
        let untold = || self.running.iter().filter(|turn| !turn.is_told);
        self.running.len() < self.running_max.saturating_mul(UNENDED_FACTOR)
            && untold().count() < self.running_max
            && untold().all(|turn| turn.lane != lane)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn turn(lane: u8) -> ReadyTurn {
        ReadyTurn {
            lane,
            stream_id: None,
            length: 0,
            content: Err(Refusal::Internal),
        }
    }

    fn piece(end: Option<u16>) -> TurnPiece {
        TurnPiece {
            frames: Bytes::from_static(b"f"),
            end,
            is_key_refused: false,
        }
    }

    #[test]
    fn a_socket_has_a_maximum_of_named_lanes() {
        let mut lanes = SocketLanes::new(1);
        assert_eq!(
            (lanes.number(None), lanes.number(Some("a")), lanes.number(Some("b"))),
            (Some(0), Some(1), Some(2))
        );
        assert_eq!((lanes.number(Some("a")), lanes.number(None)), (Some(1), Some(0)));
        for number in 3..=NAMED_LANES_MAX {
            assert_eq!(lanes.number(Some(&number.to_string())), Some(number));
        }
        assert_eq!(lanes.number(Some("one more")), None);
        assert_eq!(lanes.number(Some("b")), Some(2));
    }

    #[tokio::test]
    async fn a_lane_runs_one_request_and_another_waits() {
        let mut lanes = SocketLanes::new(2);
        let started = lanes.offer(turn(0)).expect("a place");
        assert!(started.is_some());
        let (sender, receiver) = mpsc::channel(8);
        lanes.add(0, None, receiver);
        assert!(lanes.offer(turn(0)).expect("a place").is_none(), "it waits");
        assert!(lanes.offer(turn(0)).is_err(), "a second one has no place");
        assert!(lanes.offer(turn(1)).expect("a place").is_some(), "another lane is free");
        let (other, receiver) = mpsc::channel(8);
        lanes.add(1, None, receiver);
        assert!(lanes.offer(turn(2)).expect("a place").is_none(), "two run");
        assert!(lanes.take_ready().is_none() && !lanes.is_idle());
        sender.send(piece(Some(200))).await.expect("a reader");
        drop(sender);
        let events = [
            poll_fn(|cx| lanes.poll_event(cx)).await,
            poll_fn(|cx| lanes.poll_event(cx)).await,
        ];
        assert!(
            matches!(&events, [LaneEvent::Piece(_), LaneEvent::Ended { is_told: true, .. }]),
            "{events:?}"
        );
        assert_eq!(lanes.take_ready().map(|turn| turn.lane), Some(0));
        drop(other);
        let end = poll_fn(|cx| lanes.poll_event(cx)).await;
        assert!(matches!(end, LaneEvent::Ended { is_told: false, .. }), "{end:?}");
        assert_eq!(lanes.take_waiting().map(|turn| turn.lane), Some(2));
        assert!(lanes.is_idle() && poll_fn(|cx| lanes.poll_event(cx)).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_lane_is_free_with_the_last_frame_and_few_exchanges_stay_open_behind_it() {
        let mut lanes = SocketLanes::new(1);
        let mut open = Vec::new();
        for _ in 0..2 {
            assert!(lanes.offer(turn(0)).expect("a place").is_some(), "the lane is free");
            let (sender, receiver) = mpsc::channel(8);
            lanes.add(0, None, receiver);
            sender.send(piece(Some(200))).await.expect("a reader");
            open.push(sender);
            let event = poll_fn(|cx| lanes.poll_event(cx)).await;
            assert!(matches!(event, LaneEvent::Piece(_)), "{event:?}");
        }
        assert!(lanes.offer(turn(0)).expect("a place").is_none() && lanes.take_ready().is_none());
        open.clear();
        let event = poll_fn(|cx| lanes.poll_event(cx)).await;
        assert!(matches!(event, LaneEvent::Ended { is_told: true, .. }), "{event:?}");
        assert!(lanes.take_ready().is_some() && !lanes.is_idle());
    }

    #[test]
    fn few_requests_wait() {
        let mut lanes = SocketLanes::new(1);
        lanes.add(0, None, mpsc::channel(1).1);
        for lane in 1..=16 {
            assert!(lanes.offer(turn(lane)).expect("a place").is_none());
        }
        assert!(lanes.offer(turn(17)).is_err());
    }
}

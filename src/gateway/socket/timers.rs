//! The timers of a socket: for pings, for the idle time, and for the maximum age. The time limits of an arriving message are not
//! among them.

use std::time::{Duration, Instant};

use crate::config::gateway::SocketsConfig;

/// A socket may end before it reaches its maximum age. The difference is at most the maximum age divided by this number.
const AGE_SPREAD_DIVISOR: u32 = 12;

/// The time from the Unix epoch to the first ping of a socket is a multiple of this interval, so that a worker needs only one
/// wake-up for the pings of many sockets.
const PING_STEP_MS: i64 = 100;

/// An event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerEvent {
    /// A ping to the client is due.
    Ping,
    /// The client has sent nothing since the last ping.
    Silent,
    /// The socket has carried no request for too long.
    Idle,
    /// The socket has reached its maximum age.
    Old,
}

/// The timers of one socket.
#[derive(Clone, Debug)]
pub(crate) struct SocketTimers {
    ping: Duration,
    ping_due: Instant,
    /// Whether the client was pinged and has sent nothing since.
    awaits_pong: bool,
    idle: Duration,
    idle_since: Instant,
    /// The time at which the socket reaches its maximum age; `None` after that time.
    age_due: Option<Instant>,
}

impl SocketTimers {
    /// Creates the timers of a socket that is opened at `now`, which is `unix_ms` milliseconds since the Unix epoch. `dice` is a
    /// random number that spreads the ends of sockets that were opened together.
    pub(crate) fn new(config: &SocketsConfig, (now, unix_ms): (Instant, i64), dice: u16) -> Self {
        let after_step = Duration::from_millis(unix_ms.rem_euclid(PING_STEP_MS).unsigned_abs());
        let spread = (config.lifetime / AGE_SPREAD_DIVISOR).saturating_mul(u32::from(dice)) / u32::from(u16::MAX);
        Self {
            ping: config.ping,
            ping_due: now + config.ping.saturating_sub(after_step),
            awaits_pong: false,
            idle: config.idle,
            idle_since: now,
            age_due: Some(now + config.lifetime.saturating_sub(spread)),
        }
    }

    /// Records that the client has sent something.
    pub(crate) fn on_received(&mut self) {
        self.awaits_pong = false;
    }

    /// Records that the client was pinged.
    pub(crate) fn on_ping(&mut self) {
        self.awaits_pong = true;
    }

    /// Records that a request has begun or ended.
    pub(crate) fn on_use(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Returns the time at which the next event is due. `is_idle` says whether the socket carries neither a request nor a
    /// message.
    pub(crate) fn due(&self, is_idle: bool) -> Instant {
        let idle = is_idle.then(|| self.idle_since + self.idle);
        let others = [self.age_due, idle];
        others.into_iter().flatten().fold(self.ping_due, Instant::min)
    }

    /// Returns an event that is due at `now`; `None` if no event is due. Each event is returned once.
    pub(crate) fn take_event(&mut self, now: Instant, is_idle: bool) -> Option<TimerEvent> {
        if self.age_due.take_if(|due| *due <= now).is_some() {
            return Some(TimerEvent::Old);
        }
        if is_idle && self.idle_since + self.idle <= now {
            self.idle_since = now;
            return Some(TimerEvent::Idle);
        }
        if self.ping_due > now {
            return None;
        }
        // Counted from the time at which this ping was due, so that the pings of many sockets stay together.
        let next = self.ping_due + self.ping;
        self.ping_due = if next > now { next } else { now + self.ping };
        Some(match self.awaits_pong {
            true => TimerEvent::Silent,
            false => TimerEvent::Ping,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    const CONFIG: SocketsConfig = SocketsConfig {
        enabled: true,
        per_key_max: 1,
        running_max: 1,
        ping: Duration::from_secs(30),
        idle: Duration::from_secs(100),
        lifetime: Duration::from_secs(1200),
        provider_lines_max: 0,
        provider_idle: Duration::from_secs(1),
        state_bytes_max: 0,
        state_key_bytes: None,
    };

    fn timers(start: Instant, dice: u16) -> SocketTimers {
        SocketTimers::new(&CONFIG, (start, 0), dice)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_client_that_sends_no_request_is_pinged_until_the_socket_is_idle() {
        let start = clock::instant();
        let mut timers = timers(start, 0);
        for seconds in [30, 60, 90] {
            assert_eq!(timers.due(true), after(start, seconds));
            assert_eq!(timers.take_event(after(start, seconds - 1), true), None);
            assert_eq!(timers.take_event(after(start, seconds), true), Some(TimerEvent::Ping));
            timers.on_ping();
            timers.on_received();
        }
        assert_eq!(timers.take_event(after(start, 100), true), Some(TimerEvent::Idle));
    }

    #[test]
    fn the_pings_of_sockets_that_were_opened_within_one_step_are_due_together() {
        let start = clock::instant();
        let due_ms = |opened_ms: u64| {
            let opened = start + Duration::from_millis(opened_ms);
            let mut timers = SocketTimers::new(&CONFIG, (opened, 1_790_000_000_000 + opened_ms.cast_signed()), 0);
            let first = timers.due(false);
            // A late worker does not move the following pings.
            assert_eq!(
                timers.take_event(first + Duration::from_millis(7), false),
                Some(TimerEvent::Ping)
            );
            [first, timers.due(false)].map(|due| due.duration_since(start).as_millis())
        };
        assert_eq!([0, 42, 99].map(due_ms), [[30_000, 60_000]; 3]);
        assert_eq!(due_ms(100), [30_100, 60_100]);
    }

    #[test]
    fn who_sends_nothing_between_two_pings_is_silent() {
        let start = clock::instant();
        let mut timers = timers(start, 0);
        assert_eq!(timers.take_event(after(start, 30), false), Some(TimerEvent::Ping));
        timers.on_ping();
        assert_eq!(timers.take_event(after(start, 59), false), None);
        let mut answered = timers.clone();
        assert_eq!(timers.take_event(after(start, 60), false), Some(TimerEvent::Silent));
        answered.on_received();
        assert_eq!(answered.take_event(after(start, 60), false), Some(TimerEvent::Ping));
    }

    #[test]
    fn a_socket_is_idle_only_without_a_request() {
        let start = clock::instant();
        let mut timers = timers(start, 0);
        timers.ping_due = after(start, 9999);
        timers.on_use(after(start, 50));
        assert_eq!(timers.due(true), after(start, 150));
        assert_eq!(timers.due(false), after(start, 1200));
        assert_eq!(timers.take_event(after(start, 150), false), None);
        assert_eq!(timers.take_event(after(start, 150), true), Some(TimerEvent::Idle));
    }

    #[test]
    fn sockets_that_were_opened_together_end_apart() {
        let start = clock::instant();
        let ends = |dice: u16| {
            let mut timers = timers(start, dice);
            timers.ping_due = after(start, 9999);
            timers.due(false)
        };
        assert_eq!((ends(0), ends(u16::MAX)), (after(start, 1200), after(start, 1100)));
        let mut timers = timers(start, u16::MAX);
        assert_eq!(timers.take_event(after(start, 1100), false), Some(TimerEvent::Old));
        assert_ne!(timers.take_event(after(start, 1100), false), Some(TimerEvent::Old));
    }
}

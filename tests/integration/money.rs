//! Money that adds up: what is charged, who is refused, and what faults do to neither.

mod crash;
mod disconnects;
mod disk;
mod exact;
mod faults;
mod emptied;
mod exact;
mod failover;
mod limits;
mod redis_away;

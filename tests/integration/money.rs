//! Money that adds up: what is charged, who is refused, and what faults do to neither.

mod crash;
mod disconnects;
mod disk;
mod exact;
mod faults;
mod limits;

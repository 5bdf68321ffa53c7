//! Ports for programs that have to be told one.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to connections and to listeners that name none: between the look at a port here and
/// the start of the program that gets it, no test that runs beside it is given the same one.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
/// A prime, about how many ports one run asks for.
const SPREAD: u32 = 211;

/// A port that is free now, and that nobody else in this process is told.
pub(crate) fn free_port() -> u16 {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    // Two runs of the tests begin at different places, also where one is started right after the other.
    let begin = u16::try_from(std::process::id().wrapping_mul(SPREAD) % u32::from(COUNT)).unwrap();
    let ports = (0..COUNT).map(|_| FIRST + (begin + ASKED.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT);
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().unwrap()
}

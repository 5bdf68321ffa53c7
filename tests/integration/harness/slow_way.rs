//! A way to a server on which everything that is sent takes its time; what comes back does not.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::wait::wait_within;

/// Listens on a port of its own until it is dropped.
pub(crate) struct SlowWay {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl SlowWay {
    /// To a port of this machine: each piece arrives `delay` later.
    pub(crate) fn to(port: u16, delay: Duration) -> SlowWay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stopping);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is away is seen by the client as one that closes.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || pass(&back, &forth, Duration::ZERO));
                std::thread::spawn(move || pass(&client, &server, delay));
            }
        });
        SlowWay { address, stopping }
    }

    /// The address as weir's configuration wants it.
    pub(crate) fn node(&self) -> String {
        self.address.to_string()
    }
}

/// What may be on the way at one time: all scripts, which a new connection brings first. A smaller piece would make the way
/// narrow, not long.
const PIECE_BYTES: usize = 512 * 1024;

/// Passes on what comes until one side closes; then both are closed.
fn pass(mut from: &TcpStream, mut to: &TcpStream, delay: Duration) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        wait_within(delay, || None::<()>);
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

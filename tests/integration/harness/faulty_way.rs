//! A way to an HTTP server that can be told to fail: requests are refused, are slow, or are done and their answers are lost.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::wait::wait_within;

/// How long each piece of a slow request takes.
const SLOW: Duration = Duration::from_millis(150);
const REFUSAL: &[u8] = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What happens on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Refused,
    Slow,
    /// The server has done what it was asked for, and nobody hears of it.
    AnswerLost,
}

/// Listens on a port of its own until it is dropped.
pub(crate) struct FaultyWay {
    address: SocketAddr,
    fault: Arc<Mutex<Fault>>,
    stopping: Arc<AtomicBool>,
}

impl FaultyWay {
    /// To a port of this machine; nothing fails yet.
    pub(crate) fn to(port: u16) -> FaultyWay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, stopping) = (Arc::new(Mutex::new(Fault::None)), Arc::new(AtomicBool::new(false)));
        let (now, ends) = (Arc::clone(&fault), Arc::clone(&stopping));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (asking, answering) = (Arc::clone(&now), Arc::clone(&now));
                std::thread::spawn(move || answers(&back, &forth, &answering));
                std::thread::spawn(move || requests(&client, &server, &asking));
            }
        });
        FaultyWay {
            address,
            fault,
            stopping,
        }
    }

    /// What happens from now on.
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// The server's address for whoever goes this way.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn requests(mut client: &TcpStream, mut server: &TcpStream, fault: &Mutex<Fault>) {
    let mut piece = [0; 16 * 1024];
    while let Ok(length @ 1..) = client.read(&mut piece) {
        let now = *fault.lock().unwrap();
        if now == Fault::Refused {
            let _ = client.write_all(REFUSAL);
            break;
        }
        if now == Fault::Slow {
            wait_within(SLOW, || None::<()>);
        }
        if server.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    close(client, server);
}

fn answers(mut server: &TcpStream, mut client: &TcpStream, fault: &Mutex<Fault>) {
    let mut piece = [0; 16 * 1024];
    while let Ok(length @ 1..) = server.read(&mut piece) {
        let is_lost = *fault.lock().unwrap() == Fault::AnswerLost;
        if is_lost || client.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    close(client, server);
}

fn close(client: &TcpStream, server: &TcpStream) {
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

impl Drop for FaultyWay {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

//! The header of the PROXY protocol, versions 1 and 2, by which a load balancer tells whose connection it passes on
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! It is read without ever asking for a byte behind it: that one belongs to TLS or HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest header of version 1 (its section 2.1).
const TEXT_BYTES_MAX: usize = 107;
/// The shortest one: `PROXY UNKNOWN` and its line break.
const TEXT_BYTES_MIN: usize = 15;
/// How one of version 2 begins, its fixed part, and the most that one may have in all; the protocol's own limit is 64 KiB.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const BINARY_BYTES_MIN: usize = 16;
/// The longest header that is read, in bytes.
pub const HEADER_BYTES_MAX: usize = 4096;

/// What the bytes so far come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At least so many bytes more belong to the header.
    Needs(usize),
    /// The header is whole. `None`: the connection is the balancer's own, or it does not know whose.
    Whole(Option<SocketAddr>),
}

/// The bytes are no such header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no header of the PROXY protocol")]
pub struct NotAHeader;

/// Reads the beginning of a connection. With as many bytes as [`Progress::Needs`] asks for, each time, no byte of what
/// follows is in `bytes`; more than that are refused.
///
/// # Errors
/// They are no header, whatever follows, or one longer than [`HEADER_BYTES_MAX`].
pub fn read(bytes: &[u8]) -> Result<Progress, NotAHeader> {
    match bytes.first() {
        None => Ok(Progress::Needs(TEXT_BYTES_MIN)),
        Some(b'P') => text(bytes),
        Some(_) => binary(bytes),
    }
}

fn text(bytes: &[u8]) -> Result<Progress, NotAHeader> {
    let begin = b"PROXY ";
    let shared = bytes.len().min(begin.len());
    if bytes.get(..shared) != begin.get(..shared) || bytes.len() > TEXT_BYTES_MAX {
        return Err(NotAHeader);
    }
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let wanted = match bytes {
            _ if bytes.contains(&b'\n') => return Err(NotAHeader),
            [.., b'\r'] => 1,
            _ => 2,
        };
        let wanted = wanted.max(TEXT_BYTES_MIN.saturating_sub(bytes.len()));
        // Whatever ends it would be too far away.
        return match bytes.len() + wanted > TEXT_BYTES_MAX {
            true => Err(NotAHeader),
            false => Ok(Progress::Needs(wanted)),
        };
    };
    let line = std::str::from_utf8(line).map_err(|_| NotAHeader)?;
    if line.contains(['\r', '\n']) {
        return Err(NotAHeader);
    }
    let fields: Vec<&str> = line.split(' ').collect();
    match fields.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Ok(Progress::Whole(None)),
        ["PROXY", "TCP4", source, target, port, target_port] => {
            endpoint::<Ipv4Addr>(target, target_port)?;
            endpoint::<Ipv4Addr>(source, port).map(|source| Progress::Whole(Some(source)))
        }
        ["PROXY", "TCP6", source, target, port, target_port] => {
            endpoint::<Ipv6Addr>(target, target_port)?;
            endpoint::<Ipv6Addr>(source, port).map(|source| Progress::Whole(Some(source)))
        }
        _ => Err(NotAHeader),
    }
}

fn endpoint<A: FromStr + Into<IpAddr>>(address: &str, port: &str) -> Result<SocketAddr, NotAHeader> {
    let address = address.parse::<A>().map_err(|_| NotAHeader)?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit()) && (port == "0" || !port.starts_with('0'));
    let port = port.parse().ok().filter(|_| is_number).ok_or(NotAHeader)?;
    Ok(SocketAddr::new(address.into(), port))
}

fn binary(bytes: &[u8]) -> Result<Progress, NotAHeader> {
    let shared = bytes.len().min(SIGNATURE.len());
    if bytes.get(..shared) != SIGNATURE.get(..shared) {
        return Err(NotAHeader);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<BINARY_BYTES_MIN>() else {
        return Ok(Progress::Needs(BINARY_BYTES_MIN - bytes.len()));
    };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(NotAHeader),
    };
    if length > HEADER_BYTES_MAX - BINARY_BYTES_MIN || rest.len() > length {
        return Err(NotAHeader);
    }
    if rest.len() < length {
        return Ok(Progress::Needs(length - rest.len()));
    }
    // Source and target address, then both ports; behind them further fields, which weir needs not.
    let source = match family {
        // What a balancer says of a connection of its own is to be ignored.
        _ if is_local => None,
        0x11 => Some(source::<4>(rest)?),
        0x21 => Some(source::<16>(rest)?),
        // Of no family that has a port, such as unix sockets.
        0x00 | 0x31 => None,
        _ => return Err(NotAHeader),
    };
    Ok(Progress::Whole(source))
}

fn source<const N: usize>(fields: &[u8]) -> Result<SocketAddr, NotAHeader>
where
    IpAddr: From<[u8; N]>,
{
    let (address, rest) = fields.split_first_chunk::<N>().ok_or(NotAHeader)?;
    let (_, ports) = rest.split_first_chunk::<N>().ok_or(NotAHeader)?;
    let (ports, _) = ports.split_first_chunk::<4>().ok_or(NotAHeader)?;
    let [high, low, ..] = *ports;
    Ok(SocketAddr::new(IpAddr::from(*address), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests;

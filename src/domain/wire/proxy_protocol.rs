//! Reads the header of the PROXY protocol, versions 1 and 2 (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>). In
//! this header, a load balancer sends the address of the connection's client.
//!
//! The reader never requests a byte after the end of the header, because those bytes belong to TLS or HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The maximum length of a header of version 1, in bytes (section 2.1 of the specification).
const TEXT_BYTES_MAX: usize = 107;
/// The minimum length of a header of version 1, in bytes: the length of `PROXY UNKNOWN` and its line break.
const TEXT_BYTES_MIN: usize = 15;
/// The first bytes of a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the fixed part of a header of version 2, in bytes.
const BINARY_BYTES_MIN: usize = 16;
/// The maximum length of a header that is accepted, in bytes. The protocol itself allows 64 KiB.
pub const HEADER_BYTES_MAX: usize = 4096;

/// How much of a PROXY protocol header has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderProgress {
    /// The header continues for at least this many more bytes.
    Needs(usize),
    /// The header is complete. Contains the client's address; `None` if the load balancer opened the connection for itself, or
    /// does not know the client's address.
    Whole(Option<SocketAddr>),
}

/// The error for bytes that are not a valid PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection does not begin with a valid PROXY protocol header")]
pub struct ProxyHeaderInvalid;

/// Reads a PROXY protocol header at the beginning of a connection. `bytes` must contain nothing after the header, so the caller
/// adds at most the number of bytes in [`ProxyHeaderProgress::Needs`] before the next call.
///
/// # Errors
/// The bytes are not the beginning of a valid header of at most [`HEADER_BYTES_MAX`] bytes, or other bytes follow the header.
pub fn read(bytes: &[u8]) -> Result<ProxyHeaderProgress, ProxyHeaderInvalid> {
    match bytes.first() {
        None => Ok(ProxyHeaderProgress::Needs(TEXT_BYTES_MIN)),
        Some(b'P') => read_text(bytes),
        Some(_) => read_binary(bytes),
    }
}

fn read_text(bytes: &[u8]) -> Result<ProxyHeaderProgress, ProxyHeaderInvalid> {
    let begin = b"PROXY ";
    let shared = bytes.len().min(begin.len());
    if bytes.get(..shared) != begin.get(..shared) || bytes.len() > TEXT_BYTES_MAX {
        return Err(ProxyHeaderInvalid);
    }
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let wanted = match bytes {
            _ if bytes.contains(&b'\n') => return Err(ProxyHeaderInvalid),
            [.., b'\r'] => 1,
            _ => 2,
        };
        let wanted = wanted.max(TEXT_BYTES_MIN.saturating_sub(bytes.len()));
        // With its line end, the header would exceed the limit.
        return match bytes.len() + wanted > TEXT_BYTES_MAX {
            true => Err(ProxyHeaderInvalid),
            false => Ok(ProxyHeaderProgress::Needs(wanted)),
        };
    };
    let line = std::str::from_utf8(line).map_err(|_| ProxyHeaderInvalid)?;
    if line.contains(['\r', '\n']) {
        return Err(ProxyHeaderInvalid);
    }
    let fields: Vec<&str> = line.split(' ').collect();
    match fields.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Ok(ProxyHeaderProgress::Whole(None)),
        ["PROXY", "TCP4", source, target, port, target_port] => {
            socket_address::<Ipv4Addr>(target, target_port)?;
            socket_address::<Ipv4Addr>(source, port).map(|source| ProxyHeaderProgress::Whole(Some(source)))
        }
        ["PROXY", "TCP6", source, target, port, target_port] => {
            socket_address::<Ipv6Addr>(target, target_port)?;
            socket_address::<Ipv6Addr>(source, port).map(|source| ProxyHeaderProgress::Whole(Some(source)))
        }
        _ => Err(ProxyHeaderInvalid),
    }
}

fn socket_address<A: FromStr + Into<IpAddr>>(address: &str, port: &str) -> Result<SocketAddr, ProxyHeaderInvalid> {
    let address = address.parse::<A>().map_err(|_| ProxyHeaderInvalid)?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit()) && (port == "0" || !port.starts_with('0'));
    let port = port.parse().ok().filter(|_| is_number).ok_or(ProxyHeaderInvalid)?;
    Ok(SocketAddr::new(address.into(), port))
}

fn read_binary(bytes: &[u8]) -> Result<ProxyHeaderProgress, ProxyHeaderInvalid> {
    let shared = bytes.len().min(SIGNATURE.len());
    if bytes.get(..shared) != SIGNATURE.get(..shared) {
        return Err(ProxyHeaderInvalid);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<BINARY_BYTES_MIN>() else {
        return Ok(ProxyHeaderProgress::Needs(BINARY_BYTES_MIN - bytes.len()));
    };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderInvalid),
    };
    if length > HEADER_BYTES_MAX - BINARY_BYTES_MIN || rest.len() > length {
        return Err(ProxyHeaderInvalid);
    }
    if rest.len() < length {
        return Ok(ProxyHeaderProgress::Needs(length - rest.len()));
    }
    // The rest begins with the source address, the target address and both ports. The fields after them are ignored.
    let source = match family {
        // The addresses of the load balancer's own connections must be ignored.
        _ if is_local => None,
        0x11 => Some(source_address::<4>(rest)?),
        0x21 => Some(source_address::<16>(rest)?),
        // These address families have no ports, for example Unix sockets.
        0x00 | 0x31 => None,
        _ => return Err(ProxyHeaderInvalid),
    };
    Ok(ProxyHeaderProgress::Whole(source))
}

fn source_address<const N: usize>(fields: &[u8]) -> Result<SocketAddr, ProxyHeaderInvalid>
where
    IpAddr: From<[u8; N]>,
{
    let (address, rest) = fields.split_first_chunk::<N>().ok_or(ProxyHeaderInvalid)?;
    let (_, ports) = rest.split_first_chunk::<N>().ok_or(ProxyHeaderInvalid)?;
    let (ports, _) = ports.split_first_chunk::<4>().ok_or(ProxyHeaderInvalid)?;
    let [high, low, ..] = *ports;
    Ok(SocketAddr::new(IpAddr::from(*address), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests;

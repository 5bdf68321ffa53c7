//! Checks of single values. Each method returns a usable value in any case and notes what is wrong, so that one run
//! names every mistake of a file.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use toml::de::{DeTable, DeValue};

use super::host_port::HostPort;
use super::raw_secret::RawSecret;
use crate::domain::catalogue::{SecretRef, SecretRefError};
use crate::domain::strict_toml::FileError;

/// Where a value stands: the tables from the outside in, then the key.
pub(super) type KeyPath<'a> = &'a [&'a str];

/// This machine, for default addresses.
pub(super) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The file being checked, and what has been found wrong with it.
pub(super) struct Values<'a> {
    file: &'a str,
    text: &'a str,
    folder: &'a Path,
    /// Keys that the parser has struck out as wrong.
    struck: &'a BTreeSet<String>,
    pub(super) errors: Vec<FileError>,
}

impl<'a> Values<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, folder: &'a Path, struck: &'a BTreeSet<String>) -> Self {
        Self {
            file,
            text,
            folder,
            struck,
            errors: Vec::new(),
        }
    }

    /// As [`Values::wrong`], for a value that is wrong beside those of other keys: if one of them could not be read, nothing
    /// is known of that.
    pub(super) fn wrong_combination(
        &mut self,
        others: &[KeyPath<'_>],
        at: KeyPath<'_>,
        message: impl std::fmt::Display,
    ) {
        if others
            .iter()
            .chain([&at])
            .all(|key| !self.struck.contains(&key.join(".")))
        {
            self.wrong(at, message);
        }
    }

    /// Notes that the value at `at` is wrong. `message` must not quote a value that may be a secret.
    pub(super) fn wrong(&mut self, at: KeyPath<'_>, message: impl std::fmt::Display) {
        self.errors.push(fault(self.file, self.text, at, message));
    }

    pub(super) fn number(
        &mut self,
        at: KeyPath<'_>,
        given: Option<u64>,
        default: u64,
        limits: RangeInclusive<u64>,
    ) -> u64 {
        let Some(value) = given else { return default };
        if !limits.contains(&value) {
            let (least, most) = limits.into_inner();
            self.wrong(at, format_args!("{value} is out of range, give {least} to {most}"));
        }
        value
    }

    pub(super) fn count(
        &mut self,
        at: KeyPath<'_>,
        given: Option<u64>,
        default: u64,
        limits: RangeInclusive<u64>,
    ) -> usize {
        usize::try_from(self.number(at, given, default, limits)).unwrap_or(usize::MAX)
    }

    pub(super) fn seconds(
        &mut self,
        at: KeyPath<'_>,
        given: Option<u64>,
        default: u64,
        limits: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_secs(self.number(at, given, default, limits))
    }

    pub(super) fn millis(
        &mut self,
        at: KeyPath<'_>,
        given: Option<u64>,
        default: u64,
        limits: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_millis(self.number(at, given, default, limits))
    }

    pub(super) fn address(&mut self, at: KeyPath<'_>, given: Option<&str>, default: SocketAddr) -> SocketAddr {
        let Some(text) = given else { return default };
        text.parse().unwrap_or_else(|_| {
            self.wrong(
                at,
                "not an address to listen on, give IP:PORT, such as 127.0.0.1:8080 or [::]:8080",
            );
            default
        })
    }

    /// As [`Values::address`], for a listener that is off by default.
    pub(super) fn optional_address(&mut self, at: KeyPath<'_>, given: Option<&str>) -> Option<SocketAddr> {
        given.map(|given| self.address(at, Some(given), loopback(0)))
    }

    /// Networks: `ADDRESS/BITS` each, or an address alone.
    pub(super) fn networks(&mut self, at: KeyPath<'_>, given: Option<&[String]>) -> Vec<IpNet> {
        let mut networks = Vec::new();
        for text in given.unwrap_or_default() {
            let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
            match text.parse::<IpNet>().ok().or_else(alone) {
                Some(network) => networks.push(network.trunc()),
                None => self.wrong(
                    at,
                    format_args!("`{text}` is no network, give ADDRESS/BITS or an address, such as 10.0.0.0/8 or ::1"),
                ),
            }
        }
        networks
    }

    pub(super) fn optional_path(&mut self, at: KeyPath<'_>, given: Option<&str>) -> Option<PathBuf> {
        given.map(|given| self.path(at, given))
    }

    /// A path, made absolute with the configuration's folder.
    pub(super) fn path(&mut self, at: KeyPath<'_>, given: &str) -> PathBuf {
        if given.is_empty() || given.contains('\0') {
            self.wrong(at, "not a path");
        }
        let joined = self.folder.join(given);
        // Takes `./` out, which would show in every message.
        std::path::absolute(&joined).unwrap_or(joined)
    }

    /// `HOST:PORT`, an IPv6 address in brackets.
    pub(super) fn host_port(&mut self, at: KeyPath<'_>, given: &str) -> Option<HostPort> {
        let parsed = host_port(given);
        if parsed.is_none() {
            self.wrong(
                at,
                "not a server's place, give HOST:PORT, such as 127.0.0.1:6379 or redis.example:6379",
            );
        }
        parsed
    }

    /// A reference to a secret; what stands there instead is never repeated.
    pub(super) fn secret(&mut self, at: KeyPath<'_>, given: Option<&RawSecret>) -> Option<SecretRef> {
        let parsed = match given? {
            RawSecret::Text(text) => SecretRef::parse(text),
            RawSecret::Other(_) => Err(SecretRefError),
        };
        match parsed {
            Ok(SecretRef::File(path)) => Some(SecretRef::File(self.folder.join(path).to_string_lossy().into_owned())),
            Ok(other) => Some(other),
            Err(error) => {
                self.wrong(at, error);
                None
            }
        }
    }
}

fn host_port(text: &str) -> Option<HostPort> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|host| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !host.is_empty() && host.len() <= 253 && host.bytes().all(plain)
        })?,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(HostPort {
        host: host.to_owned(),
        port,
    })
}

/// A fault of the value at `at`.
fn fault(file: &str, text: &str, at: KeyPath<'_>, message: impl std::fmt::Display) -> FileError {
    let key = at.join(".");
    let message = format!("key `{key}`: {message}");
    match span_of(text, at) {
        Some(span) => FileError::at(file, text, span, &key, message),
        None => FileError {
            file: file.to_owned(),
            line: None,
            key: Some(key),
            message,
        },
    }
}

/// Where a key stands, found by reading the text again: the strict parser keeps no places of what it accepted. Elements of
/// lists are named by their number, from 1.
fn span_of(text: &str, at: KeyPath<'_>) -> Option<Range<usize>> {
    let (first, rest) = at.split_first()?;
    let document = DeTable::parse(text).ok()?.into_inner();
    let (key, mut value) = document.get_key_value(*first)?;
    let mut span = key.span();
    for name in rest {
        (span, value) = match value.get_ref() {
            DeValue::Table(table) => table.get_key_value(*name).map(|(key, value)| (key.span(), value))?,
            DeValue::Array(list) => {
                let element = list.get(name.parse::<usize>().ok()?.checked_sub(1)?)?;
                (element.span(), element)
            }
            _ => return None,
        };
    }
    Some(span)
}

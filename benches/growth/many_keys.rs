//! A backup with as many keys as are asked for, made from that of a store that has one: restoring it is the quickest way to a store
//! with a million.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of a key between its prefix and its checksum, and of its checksum.
const RANDOM_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
/// Of the random ones, those that people are shown.
const HINT_CHARS: usize = 4;

/// The number of a key that a backup has, as the key's text.
pub(crate) fn text(number: usize) -> String {
    let text = format!("weir-{number:0RANDOM_CHARS$}");
    let mut left = crc32fast::hash(text.as_bytes()) as usize;
    let mut checksum = [b'0'; CHECKSUM_CHARS];
    for digit in checksum.iter_mut().rev() {
        *digit = BASE62[left % BASE62.len()];
        left /= BASE62.len();
    }
    text + &String::from_utf8_lossy(&checksum)
}

/// Writes the backup `from` to `to`, with keys of the numbers up to `count` instead of the one that it has.
pub(crate) fn write(from: &str, to: &Path, count: usize) -> io::Result<()> {
    let mut out = Lines {
        file: BufWriter::new(File::create(to)?),
        hash: Sha256::new(),
    };
    let mut items = 0_usize;
    for line in from.lines() {
        let value: Value = serde_json::from_str(line)?;
        if let Some(key) = value.get("key") {
            for number in 0..count {
                out.write(&json!({ "key": numbered(key, number) }))?;
            }
            items += count;
        } else if value.get("end").is_some() {
            let sha256 = hex(&out.hash.clone().finalize());
            out.write(&json!({ "end": { "items": items, "sha256": sha256 } }))?;
        } else {
            // The first line is no item.
            items += usize::from(value.get("weir_backup").is_none());
            out.write(&value)?;
        }
    }
    out.file.flush()
}

fn numbered(key: &Value, number: usize) -> Value {
    let text = text(number);
    let hint = &text[text.len() - CHECKSUM_CHARS - HINT_CHARS..text.len() - CHECKSUM_CHARS];
    let mut key = key.clone();
    key["digest"] = hex(&Sha256::digest(text.as_bytes())).into();
    key["record"]["id"] = format!("key_{number:016}").into();
    key["record"]["name"] = format!("bench {number}").into();
    key["record"]["hint"] = hint.into();
    key
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Lines {
    file: BufWriter<File>,
    hash: Sha256,
}

impl Lines {
    fn write(&mut self, value: &Value) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.hash.update(&line);
        self.file.write_all(&line)
    }
}

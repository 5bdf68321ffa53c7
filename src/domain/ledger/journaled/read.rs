//! Reads the JSON of records. serde holds a tagged value as a whole before it looks at it, as its tag may stand anywhere; a
//! row takes three times the instructions so. What weir writes for each request has its tags in front, so it is known
//! beforehand.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use smol_str::SmolStr;

use crate::domain::ledger::{
    journaled::{Admitted, Checkpoint, Record},
    step::{Change, Settlement, Step},
};

const ADMIT: &[u8] = br#"{"kind":"admit","#;
const CHECKPOINT: &[u8] = br#"{"kind":"checkpoint","#;
const STEP: &[u8] = br#"{"kind":"step","#;
/// Quotes within a JSON string are escaped, so this stands nowhere else.
static SETTLE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#","change":{"op":"settle","#));

/// A step that settles, without its tags.
#[derive(Deserialize)]
struct SettlingRecord {
    account: SmolStr,
    step: SettlingStep,
}

#[derive(Deserialize)]
struct SettlingStep {
    seq: u64,
    change: Box<Settlement>,
}

impl Record {
    /// Whether this is the JSON of a [`Record::Step`], as [`Record::write_json`] writes it.
    pub(crate) fn is_step(json: &[u8]) -> bool {
        json.starts_with(STEP)
    }

    /// Reads a record's JSON, whichever version of weir has written it.
    ///
    /// # Errors
    /// As for [`serde_json::from_slice`].
    pub(crate) fn read_json(json: &[u8]) -> serde_json::Result<Self> {
        match untagged(json) {
            Some(record) => Ok(record),
            None => serde_json::from_slice(json),
        }
    }
}

/// A record whose tags stand where weir writes them.
fn untagged(json: &[u8]) -> Option<Record> {
    // Looked at as a whole, or each of its strings would be.
    let text = std::str::from_utf8(json).ok()?;
    if json.starts_with(ADMIT) {
        let admitted: Admitted = serde_json::from_str(text).ok()?;
        return Some(Record::Admit(Box::new(admitted)));
    }
    if json.starts_with(CHECKPOINT) {
        let reached: Checkpoint = serde_json::from_str(text).ok()?;
        return Some(Record::Checkpoint(Box::new(reached)));
    }
    if !Record::is_step(json) || SETTLE.find(json).is_none() {
        return None;
    }
    let SettlingRecord { account, step } = serde_json::from_str(text).ok()?;
    let SettlingStep { seq, change } = step;
    Some(Record::Step {
        account,
        step: Step {
            seq,
            change: Change::Settle(change),
        },
    })
}

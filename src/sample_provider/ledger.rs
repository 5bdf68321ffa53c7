//! The ledger of the sample provider. It records the amounts that the provider would bill. Each line is a JSON object.
//!
//! A billed response has two lines: `start` with the input and `end` with the bill. Any other response has only an `end` line
//! with zero tokens. Each line is written first, and the bytes that it bills are sent afterwards. The bill of a run is the sum of
//! its `end` lines. A `start` without an `end` means that the process ended during the response. The ledger never contains
//! prompts or answers.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::performance::SampleBill;
use super::steps::SampleEnding;
use crate::domain::wire::UpstreamProtocol;
use crate::edges::clock;
use crate::sample_provider::ClientGoneBilling;

/// The sample provider's ledger: an append-only file, or no file if nothing is recorded.
#[derive(Debug)]
pub(super) struct SampleLedger {
    file: Option<Mutex<File>>,
}

impl SampleLedger {
    /// Opens the file at `path` for appending. Without a path, nothing is recorded.
    pub(super) fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let file = path
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        Ok(Self {
            file: file.map(Mutex::new),
        })
    }

    fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    fn write(&self, line: &SampleLedgerLine<'_>) {
        let Some(file) = &self.file else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        // One write per line keeps lines complete even if two processes share the file.
        let mut file = file.lock();
        if let Err(error) = file.write_all(&text) {
            tracing::error!(%error, "cannot write to the sample provider's ledger");
        }
    }
}

/// One line of the ledger. Tests and comparisons depend on its fields.
#[derive(Serialize)]
struct SampleLedgerLine<'a> {
    event: &'a str,
    time_ms: i64,
    request_id: &'a str,
    protocol: &'a str,
    model: &'a str,
    stream: bool,
    status: u16,
    input_tokens: u64,
    input_estimated: bool,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    output_tokens: u64,
    sent_events: usize,
    client_left: bool,
    ending: Option<&'a str>,
}

/// The ledger's entry for one response. It is opened before the response's head is sent, and closed exactly once, at the latest
/// when this value is dropped.
#[derive(Debug)]
pub(super) struct SampleLedgerEntry {
    ledger: Arc<SampleLedger>,
    bill: Arc<SampleBill>,
    request_id: String,
    protocol: UpstreamProtocol,
    on_client_gone: ClientGoneBilling,
    sent_events: usize,
    sent_deltas: usize,
    closed: bool,
}

impl SampleLedgerEntry {
    /// Opens the entry and writes its `start` line.
    pub(super) fn open(
        ledger: Arc<SampleLedger>,
        bill: Arc<SampleBill>,
        request_id: String,
        protocol: UpstreamProtocol,
        on_client_gone: ClientGoneBilling,
    ) -> Self {
        let entry = Self {
            ledger,
            bill,
            request_id,
            protocol,
            on_client_gone,
            sent_events: 0,
            sent_deltas: 0,
            closed: false,
        };
        if entry.bill.billed {
            entry.write("start", 0, None);
        }
        entry
    }

    /// Records that an event is about to be sent. `deltas` is the number of deltas sent so far, including this event.
    pub(super) fn on_send(&mut self, deltas: usize) {
        self.sent_events += 1;
        self.sent_deltas = deltas;
    }

    /// Writes the `end` line, unless it has already been written.
    pub(super) fn settle(&mut self, deltas: usize, ending: SampleEnding) {
        if !self.closed {
            self.closed = true;
            self.write("end", deltas, Some(ending));
        }
    }

    fn write(&self, event: &str, deltas: usize, ending: Option<SampleEnding>) {
        if !self.ledger.is_kept() {
            return;
        }
        self.ledger.write(&SampleLedgerLine {
            event,
            time_ms: clock::unix_millis(),
            request_id: &self.request_id,
            protocol: self.protocol.as_str(),
            model: &self.bill.model,
            stream: self.bill.stream,
            status: self.bill.status,
            input_tokens: self.bill.input.count,
            input_estimated: self.bill.input.estimated,
            cache_read_tokens: self.bill.cache_read,
            cache_write_tokens: self.bill.cache_write,
            output_tokens: self.bill.answer.tokens_after(deltas),
            sent_events: self.sent_events,
            client_left: ending == Some(SampleEnding::ClientLeft),
            ending: ending.map(SampleEnding::as_str),
        });
    }
}

impl Drop for SampleLedgerEntry {
    fn drop(&mut self) {
        let deltas = match self.on_client_gone {
            ClientGoneBilling::Finish => self.bill.deltas,
            ClientGoneBilling::Stop => self.sent_deltas,
        };
        self.settle(deltas, SampleEnding::ClientLeft);
    }
}

//! The steps of one response: what is sent, when it pauses, where it breaks. Pure; the server only follows them.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::reply::{Frame, FrameKind};
use super::script::{Close, Encoding, Script};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyStep {
    /// Wait for the gap between two deltas.
    Pause,
    /// Send these bytes; afterwards `deltas` deltas are out.
    Send {
        /// The bytes on the wire.
        bytes: Bytes,
        /// Deltas sent up to and with this step.
        deltas: usize,
    },
    /// Write the closing line of the ledger: `deltas` deltas were generated, and it ended so.
    Settle { deltas: usize, ending: Ending },
    /// Break the connection; the flag says whether by RST.
    Break {
        /// RST or FIN.
        close: Close,
    },
    /// Send nothing more and keep the connection until the client leaves.
    Stall,
}

/// How a response ended, as the ledger has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// As the protocol says.
    Complete,
    /// With an error of the protocol in a response of status 200.
    InBandError,
    /// Broken off by the provider.
    Cut,
    ClientLeft,
    /// Refused: an error status, nothing is billed.
    Refused,
    Counted,
}

impl Ending {
    /// The word in the ledger.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::InBandError => "in_band_error",
            Self::Cut => "cut",
            Self::ClientLeft => "client_left",
            Self::Refused => "refused",
            Self::Counted => "counted",
        }
    }
}

/// What interrupts a stream after a number of deltas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interruption {
    Cut,
    Stall,
    InBandError,
}

/// The steps of a stream of `frames`. `in_band_error` renders the error, given the number of frames before it.
pub(super) fn of_stream(frames: &[Frame], script: &Script, in_band_error: impl Fn(usize) -> Frame) -> Vec<ReplyStep> {
    let interruption = first_interruption(script);
    let pauses = script.gap().as_millis() > 0;
    let mut steps = Steps::new(script, frames.len() * if pauses { 2 } else { 1 } + 4);
    let mut settled = false;
    for (index, frame) in frames.iter().enumerate() {
        let now = interruption.filter(|(after, _)| {
            let enough = steps.deltas >= *after && (*after > 0 || frame.kind == FrameKind::Delta);
            enough || frame.kind == FrameKind::Final
        });
        if let Some((_, interruption)) = now {
            steps.interrupt(interruption, frame, script, || in_band_error(index));
            return steps.done();
        }
        match frame.kind {
            FrameKind::Delta => {
                if pauses && steps.deltas > 0 {
                    steps.done.push(ReplyStep::Pause);
                }
                steps.deltas += 1;
            }
            FrameKind::Final if !settled => {
                settled = true;
                steps.settle(Ending::Complete);
            }
            FrameKind::Final | FrameKind::Other => {}
        }
        steps.send(&frame.bytes);
    }
    steps.finish();
    steps.done()
}

/// The steps of a body that is sent at once, after `deltas` deltas were generated for it.
pub(super) fn of_body(body: &Bytes, deltas: usize, ending: Ending, script: &Script) -> Vec<ReplyStep> {
    let mut steps = Steps::new(script, 4);
    steps.deltas = deltas;
    let cut = script.cut_after.is_some();
    if cut || script.stall_after.is_some() {
        // What is on the wire is cut, so a compressed body is cut too.
        let whole = steps.encoded(body);
        let half = whole.slice(..whole.len() / 2);
        if cut {
            steps.settle(if ending == Ending::Complete {
                Ending::Cut
            } else {
                ending
            });
        }
        steps.done.push(ReplyStep::Send { bytes: half, deltas });
        match (cut, script.close()) {
            (false, _) => steps.done.push(ReplyStep::Stall),
            (true, Close::Clean) => {}
            (true, close) => steps.done.push(ReplyStep::Break { close }),
        }
        return steps.done();
    }
    steps.settle(ending);
    let whole = steps.encoded(body);
    steps.done.push(ReplyStep::Send { bytes: whole, deltas });
    steps.done()
}

/// The length a unary response announces: that of the whole body, also when less is sent. `None` when a clean cut has
/// to look like a body that ended properly.
pub(super) fn announced_length(body: &Bytes, script: &Script) -> Option<u64> {
    if script.cut_after.is_some() && script.close() == Close::Clean {
        return None;
    }
    u64::try_from(Steps::new(script, 0).encoded(body).len()).ok()
}

/// The interruption that comes first; a cut before a stall before an error when they come together.
fn first_interruption(script: &Script) -> Option<(usize, Interruption)> {
    let orders = [
        (script.cut_after, Interruption::Cut),
        (script.stall_after, Interruption::Stall),
        (script.in_band_error_after, Interruption::InBandError),
    ];
    orders
        .into_iter()
        .filter_map(|(after, what)| Some((after?, what)))
        .min_by_key(|(after, _)| *after)
}

struct Steps {
    done: Vec<ReplyStep>,
    deltas: usize,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Steps {
    fn new(script: &Script, capacity: usize) -> Self {
        let gzip = (script.encoding == Some(Encoding::Gzip)).then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self {
            done: Vec::with_capacity(capacity),
            deltas: 0,
            gzip,
        }
    }

    fn done(self) -> Vec<ReplyStep> {
        self.done
    }

    fn settle(&mut self, ending: Ending) {
        self.done.push(ReplyStep::Settle {
            deltas: self.deltas,
            ending,
        });
    }

    fn send(&mut self, bytes: &Bytes) {
        let bytes = match &mut self.gzip {
            None => bytes.clone(),
            Some(encoder) => {
                // Writing to a Vec cannot fail; were it to, the client would see a broken gzip stream.
                let _ = encoder.write_all(bytes).and_then(|()| encoder.flush());
                std::mem::take(encoder.get_mut()).into()
            }
        };
        self.done.push(ReplyStep::Send {
            bytes,
            deltas: self.deltas,
        });
    }

    /// Ends a compressed stream properly; nothing for a plain one.
    fn finish(&mut self) {
        if let Some(trailer) = self.gzip.take().and_then(|encoder| encoder.finish().ok()) {
            self.done.push(ReplyStep::Send {
                bytes: trailer.into(),
                deltas: self.deltas,
            });
        }
    }

    fn encoded(&mut self, body: &Bytes) -> Bytes {
        match self.gzip.take() {
            None => body.clone(),
            Some(mut encoder) => {
                let _ = encoder.write_all(body);
                encoder.finish().unwrap_or_default().into()
            }
        }
    }

    fn interrupt(&mut self, interruption: Interruption, next: &Frame, script: &Script, error: impl FnOnce() -> Frame) {
        match interruption {
            Interruption::Stall => self.done.push(ReplyStep::Stall),
            Interruption::InBandError => {
                self.settle(Ending::InBandError);
                self.send(&error().bytes);
                self.finish();
            }
            Interruption::Cut => {
                self.settle(Ending::Cut);
                if script.half_event == Some(true) {
                    self.send(&next.bytes.slice(..next.bytes.len() / 2));
                }
                match script.close() {
                    Close::Clean => self.finish(),
                    close @ (Close::Broken | Close::Reset) => self.done.push(ReplyStep::Break { close }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The steps of a response: the bytes to send, the pauses, and the break. The functions are pure; the server only follows the
//! steps.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::script::{BodyEncoding, CutStyle, SampleScript};
use crate::sample_provider::answer::{FrameKind, SampleFrame};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyStep {
    /// Pause between two deltas.
    Pause,
    /// Send these bytes.
    Send {
        /// The bytes on the wire.
        bytes: Bytes,
        /// The number of deltas sent so far, including this step.
        deltas: usize,
    },
    /// Write the `end` line of the ledger. `deltas` deltas were generated, and the response ended with `ending`.
    Settle { deltas: usize, ending: SampleEnding },
    /// Break the connection.
    Break {
        /// The way in which the connection is closed: RST or FIN.
        close: CutStyle,
    },
    /// Send nothing more, and leave the connection open until the client disconnects.
    Stall,
}

/// The way in which a response ended, for the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleEnding {
    /// The response ended completely, according to its protocol.
    Complete,
    /// The response ended with an error of the protocol, although its status was 200.
    InBandError,
    /// The provider broke off the response.
    Cut,
    ClientLeft,
    /// The response had an error status; nothing is billed.
    Refused,
    Counted,
}

impl SampleEnding {
    /// Returns the name of this ending in the ledger.
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

/// An interruption that a script demands after a number of deltas of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interruption {
    Cut,
    Stall,
    InBandError,
}

/// Returns the steps of a stream with the events `frames`. `in_band_error` renders an in-band error. Its argument is the number
/// of events before the error.
pub(super) fn stream_steps(
    frames: &[SampleFrame],
    script: &SampleScript,
    in_band_error: impl Fn(usize) -> SampleFrame,
) -> Vec<ReplyStep> {
    let interruption = first_interruption(script);
    let pauses = script.gap().as_millis() > 0;
    let mut steps = StepBuilder::new(script, frames.len() * if pauses { 2 } else { 1 } + 4);
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
                steps.settle(SampleEnding::Complete);
            }
            FrameKind::Final | FrameKind::Other => {}
        }
        steps.send(&frame.bytes);
    }
    steps.finish();
    steps.done()
}

/// Returns the steps of a body that is not streamed, for which `deltas` deltas were generated.
pub(super) fn body_steps(body: &Bytes, deltas: usize, ending: SampleEnding, script: &SampleScript) -> Vec<ReplyStep> {
    let mut steps = StepBuilder::new(script, 4);
    steps.deltas = deltas;
    let cut = script.cut_after.is_some();
    if cut || script.stall_after.is_some() {
        // The break cuts the bytes on the wire, so a compressed body is cut after compression.
        let whole = steps.encoded(body);
        let half = whole.slice(..whole.len() / 2);
        if cut {
            steps.settle(if ending == SampleEnding::Complete {
                SampleEnding::Cut
            } else {
                ending
            });
        }
        steps.done.push(ReplyStep::Send { bytes: half, deltas });
        match (cut, script.close()) {
            (false, _) => steps.done.push(ReplyStep::Stall),
            (true, CutStyle::Clean) => {}
            (true, close) => steps.done.push(ReplyStep::Break { close }),
        }
        return steps.done();
    }
    steps.settle(ending);
    let whole = steps.encoded(body);
    steps.done.push(ReplyStep::Send { bytes: whole, deltas });
    steps.done()
}

/// Returns the declared length of a non-streaming response in bytes. It is the length of the complete body, even if less is sent.
/// `None` if the script demands a clean break, because such a break must look like the proper end of a body.
pub(super) fn announced_length(body: &Bytes, script: &SampleScript) -> Option<u64> {
    if script.cut_after.is_some() && script.close() == CutStyle::Clean {
        return None;
    }
    u64::try_from(StepBuilder::new(script, 0).encoded(body).len()).ok()
}

/// Returns the first interruption, with the number of deltas before it. If several interruptions have the same number of deltas,
/// a break has precedence over a stall, and a stall has precedence over an error.
fn first_interruption(script: &SampleScript) -> Option<(usize, Interruption)> {
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

struct StepBuilder {
    done: Vec<ReplyStep>,
    deltas: usize,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl StepBuilder {
    fn new(script: &SampleScript, capacity: usize) -> Self {
        let gzip =
            (script.encoding == Some(BodyEncoding::Gzip)).then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self {
            done: Vec::with_capacity(capacity),
            deltas: 0,
            gzip,
        }
    }

    fn done(self) -> Vec<ReplyStep> {
        self.done
    }

    fn settle(&mut self, ending: SampleEnding) {
        self.done.push(ReplyStep::Settle {
            deltas: self.deltas,
            ending,
        });
    }

    fn send(&mut self, bytes: &Bytes) {
        let bytes = match &mut self.gzip {
            None => bytes.clone(),
            Some(encoder) => {
                // Writing to a `Vec` cannot fail.
                let _ = encoder.write_all(bytes).and_then(|()| encoder.flush());
                std::mem::take(encoder.get_mut()).into()
            }
        };
        self.done.push(ReplyStep::Send {
            bytes,
            deltas: self.deltas,
        });
    }

    /// Ends a compressed stream properly. Does nothing for an uncompressed stream.
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

    fn interrupt(
        &mut self,
        interruption: Interruption,
        next: &SampleFrame,
        script: &SampleScript,
        error: impl FnOnce() -> SampleFrame,
    ) {
        match interruption {
            Interruption::Stall => self.done.push(ReplyStep::Stall),
            Interruption::InBandError => {
                self.settle(SampleEnding::InBandError);
                self.send(&error().bytes);
                self.finish();
            }
            Interruption::Cut => {
                self.settle(SampleEnding::Cut);
                if script.half_event == Some(true) {
                    self.send(&next.bytes.slice(..next.bytes.len() / 2));
                }
                match script.close() {
                    CutStyle::Clean => self.finish(),
                    close @ (CutStyle::Broken | CutStyle::Reset) => self.done.push(ReplyStep::Break { close }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

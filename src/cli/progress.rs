//! How far a long command is: one line at the terminal of standard error, with its rate and the time left. It is drawn nowhere
//! else, and cleared before the command says anything.

use std::{fmt, io, time::Duration};

use clap::Args;
use indicatif::{
    HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressState,
    ProgressStyle,
};

use crate::edges::clock;

/// The interval in which the line is drawn, also while nothing comes.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
/// The time from which a rate says something.
const RATE_AFTER: Duration = Duration::from_secs(1);
/// The least rate per second that is told per second; a lower one is told per minute.
const PER_SECOND_MIN: u64 = 10;

/// The option of each command that shows how far it is.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ProgressArgs {
    /// Do not show how far the command is; without this a line at the terminal of standard error does
    #[arg(long, short)]
    pub quiet: bool,
}

/// The things that a command works through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Items of a backup.
    Items,
    /// Accounts of an installation.
    Accounts,
    /// Days, of one account or of several.
    Days,
}

impl Unit {
    /// A number of them, without their name where they are counted.
    fn number(self, count: u64) -> String {
        match self {
            Self::Bytes => HumanBytes(count).to_string(),
            Self::Items | Self::Accounts | Self::Days => HumanCount(count).to_string(),
        }
    }

    /// A number of them with their name.
    fn amount(self, count: u64) -> String {
        let name = match self {
            Self::Bytes => return self.number(count),
            Self::Items => "items",
            Self::Accounts => "accounts",
            Self::Days => "days",
        };
        format!("{} {name}", self.number(count))
    }
}

/// The line for a position.
struct Line {
    doing: &'static str,
    unit: Unit,
    position: u64,
    total: Option<u64>,
    elapsed: Duration,
}

impl Line {
    /// The mean rate so far; `None` as long as it says nothing.
    fn rate(&self) -> Option<String> {
        let elapsed_ms = self.elapsed.as_millis();
        if self.position == 0 || self.elapsed < RATE_AFTER {
            return None;
        }
        let within = |ms: u128| u64::try_from(u128::from(self.position) * ms / elapsed_ms).unwrap_or(u64::MAX);
        Some(match (self.unit, within(1_000)) {
            (Unit::Items | Unit::Accounts | Unit::Days, ..PER_SECOND_MIN) => {
                format!("{}/min", self.unit.amount(within(60_000)))
            }
            (_, rate) => format!("{}/s", self.unit.amount(rate)),
        })
    }

    /// The time left at that rate; `None` where the total or the rate is not known.
    fn time_left(&self) -> Option<Duration> {
        let left = self.total?.saturating_sub(self.position);
        self.rate()?;
        let left_ms = self.elapsed.as_millis() * u128::from(left) / u128::from(self.position);
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doing, unit, .. } = self;
        match self.total {
            Some(total) => write!(to, "{doing}: {} of {}", unit.number(self.position), unit.amount(total))?,
            None => write!(to, "{doing}: {}", unit.amount(self.position))?,
        }
        if let Some(rate) = self.rate() {
            write!(to, ", {rate}")?;
        }
        match self.time_left() {
            Some(left) => write!(to, ", {:#} left", HumanDuration(left)),
            None => Ok(()),
        }
    }
}

/// A line that shows how far a command is, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    is_shown: bool,
}

impl Progress {
    /// Draws the line where standard error is a terminal, unless the command is to be quiet. `doing` is its first word; without a
    /// `total` it has no time left.
    pub(crate) fn start(args: ProgressArgs, doing: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let target = if args.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let is_shown = !target.is_hidden();
        let bar = ProgressBar::with_draw_target(total, target);
        let started = clock::instant();
        let line = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let line = Line {
                doing,
                unit,
                position: state.pos(),
                total: state.len(),
                elapsed: clock::instant().saturating_duration_since(started),
            };
            // It goes into a text, which takes all.
            let _ = write!(out, "{line}");
        };
        if let Ok(style) = ProgressStyle::with_template("{line}{wide_msg}") {
            bar.set_style(style.with_key("line", line));
        }
        if is_shown {
            bar.tick();
            bar.enable_steady_tick(REDRAW_INTERVAL);
        }
        Self { bar, is_shown }
    }

    /// Whether there is a line; without one nothing has to be found out for it.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Sets the total once it is known.
    pub(crate) fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Sets the number of things that are done.
    pub(crate) fn set_position(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Adds things that are done.
    pub(crate) fn advance(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Shows the thing at hand behind the numbers.
    pub(crate) fn show(&self, current: impl fmt::Display) {
        if self.is_shown {
            self.bar.set_message(format!(": {current}"));
        }
    }

    /// A writer whose bytes are added as they are written.
    pub(crate) fn count_writes<W: io::Write>(&self, out: W) -> ProgressBarIter<W> {
        self.bar.wrap_write(out)
    }

    /// A reader whose bytes are added as they are read.
    pub(crate) fn count_reads<R: io::Read>(&self, from: R) -> ProgressBarIter<R> {
        self.bar.wrap_read(from)
    }

    /// A writer of lines that are not torn where they go to the same terminal.
    pub(crate) fn above<W: io::Write>(&self, out: W) -> LinesAbove<'_, W> {
        LinesAbove { progress: self, out }
    }
}

/// The line is gone before anything else is said, and its thread has ended.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes lines while a [`Progress`] is drawn: its line is cleared for each, and drawn again behind it.
#[derive(Debug)]
pub(crate) struct LinesAbove<'a, W> {
    progress: &'a Progress,
    out: W,
}

impl<W: io::Write> io::Write for LinesAbove<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.bar.suspend(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.progress.bar.suspend(|| self.out.flush())
    }

    /// In one piece, so that it is drawn again once.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        io::Write::write_all(self, text.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use io::Write as _;

    use super::*;

    fn line(unit: Unit, position: u64, total: Option<u64>, elapsed_ms: u64) -> String {
        let line = Line {
            doing: "Checking",
            unit,
            position,
            total,
            elapsed: Duration::from_millis(elapsed_ms),
        };
        line.to_string()
    }

    #[test]
    fn a_position_is_shown_with_its_rate_and_the_time_left() {
        const MIB: u64 = 1 << 20;
        assert_eq!(
            line(Unit::Bytes, MIB, Some(4 * MIB), 2_000),
            "Checking: 1.00 MiB of 4.00 MiB, 512.00 KiB/s, 6s left"
        );
        assert_eq!(
            line(Unit::Items, 120_000, Some(1_000_000), 10_000),
            "Checking: 120,000 of 1,000,000 items, 12,000 items/s, 73s left"
        );
        assert_eq!(
            line(Unit::Days, 12, Some(180), 60_000),
            "Checking: 12 of 180 days, 12 days/min, 14m left",
            "seldom a day"
        );
        assert_eq!(
            line(Unit::Accounts, 5, Some(5), 2_000),
            "Checking: 5 of 5 accounts, 150 accounts/min, 0s left"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        assert_eq!(
            line(Unit::Bytes, 3 << 20, None, 3_000),
            "Checking: 3.00 MiB, 1.00 MiB/s",
            "no total"
        );
        assert_eq!(line(Unit::Days, 9, None, 999), "Checking: 9 days", "too early");
        for elapsed_ms in [0, 5_000] {
            assert_eq!(line(Unit::Items, 0, Some(7), elapsed_ms), "Checking: 0 of 7 items");
        }
        assert_eq!(
            line(Unit::Items, 9, Some(7), 1_000),
            "Checking: 9 of 7 items, 540 items/min, 0s left",
            "more than there were"
        );
        let endless = line(Unit::Bytes, 1, Some(u64::MAX), u64::MAX);
        assert!(endless.starts_with("Checking: 1 B of 16.00 EiB, 0 B/s, "), "{endless}");
    }

    #[test]
    fn lines_are_written_as_they_are() {
        let quiet = ProgressArgs { quiet: true };
        let progress = Progress::start(quiet, "Checking", Unit::Days, Some(2));
        assert!(!progress.is_shown());
        let mut out = Vec::new();
        let mut above = progress.above(&mut out);
        for (account, rows) in [("acme", 7), ("b", 0)] {
            writeln!(above, "{account}  {rows}").unwrap();
        }
        above.flush().unwrap();
        progress.advance(1);
        progress.show("acme");
        assert_eq!(out, b"acme  7\nb  0\n");
    }
}

//! Displays the progress of a long command as one line with the rate and the remaining time. The line is displayed only if
//! standard error is a terminal, and is cleared before the command prints anything.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use indicatif::{
    HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressState,
    ProgressStyle,
};

use crate::edges::clock;

/// The interval at which the line is redrawn even if nothing has changed.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
/// The time from the start of the command until a rate is displayed.
const RATE_AFTER: Duration = Duration::from_secs(1);
/// The minimum rate that is displayed as units per second. A lower rate is displayed as units per minute.
const PER_SECOND_MIN: u64 = 10;

/// Returns the number with the noun, which gets an `s` unless the number is 1.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The option of commands that display their progress.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ProgressArgs {
    /// Do not display the progress. Without this option, it is displayed if standard error is a terminal
    #[arg(long, short)]
    pub quiet: bool,
}

/// The unit in which the progress of a command is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressUnit {
    /// The bytes of a file.
    Bytes,
    /// The items of a backup.
    Items,
    /// The accounts of an installation.
    Accounts,
    /// The days of one account or of several.
    Days,
}

impl ProgressUnit {
    /// Formats a number. The result includes the unit only if the unit is bytes.
    fn number(self, count: u64) -> String {
        match self {
            Self::Bytes => HumanBytes(count).to_string(),
            Self::Items | Self::Accounts | Self::Days => HumanCount(count).to_string(),
        }
    }

    /// Formats a number with the name of the unit.
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

/// The figures in the line that displays the progress.
struct ProgressLine {
    doing: &'static str,
    unit: ProgressUnit,
    position: u64,
    total: Option<u64>,
    elapsed: Duration,
}

impl ProgressLine {
    /// Returns the mean rate so far as text. `None` if the command has not run long enough for a meaningful rate.
    fn rate(&self) -> Option<String> {
        let elapsed_ms = self.elapsed.as_millis();
        if self.position == 0 || self.elapsed < RATE_AFTER {
            return None;
        }
        let within = |ms: u128| u64::try_from(u128::from(self.position) * ms / elapsed_ms).unwrap_or(u64::MAX);
        Some(match (self.unit, within(1_000)) {
            (ProgressUnit::Items | ProgressUnit::Accounts | ProgressUnit::Days, ..PER_SECOND_MIN) => {
                format!("{}/min", self.unit.amount(within(60_000)))
            }
            (_, rate) => format!("{}/s", self.unit.amount(rate)),
        })
    }

    /// Returns the remaining time at the mean rate. `None` if the total or the rate is not known.
    fn time_left(&self) -> Option<Duration> {
        let left = self.total?.saturating_sub(self.position);
        self.rate()?;
        let left_ms = self.elapsed.as_millis() * u128::from(left) / u128::from(self.position);
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for ProgressLine {
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

/// Displays the progress of a command until this value is dropped.
#[derive(Debug)]
pub(crate) struct CommandProgress {
    bar: ProgressBar,
    is_shown: bool,
}

impl CommandProgress {
    /// Displays the progress if standard error is a terminal and the command is not quiet. `doing` is the first word of the line.
    /// Without a `total`, the remaining time is not displayed.
    pub(crate) fn start(args: ProgressArgs, doing: &'static str, unit: ProgressUnit, total: Option<u64>) -> Self {
        let target = if args.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let is_shown = !target.is_hidden();
        let bar = ProgressBar::with_draw_target(total, target);
        let started = clock::instant();
        let line = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let line = ProgressLine {
                doing,
                unit,
                position: state.pos(),
                total: state.len(),
                elapsed: clock::instant().saturating_duration_since(started),
            };
            // Writing to a `String` cannot fail.
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

    /// Returns whether the progress is displayed. If not, the caller need not compute the figures.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Sets the total number of units, which may be known only after the start.
    pub(crate) fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Sets the number of completed units.
    pub(crate) fn set_position(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Adds `count` to the number of completed units.
    pub(crate) fn advance(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Displays the current unit after the figures.
    pub(crate) fn show(&self, current: impl fmt::Display) {
        if self.is_shown {
            self.bar.set_message(format!(": {current}"));
        }
    }

    /// Wraps a writer in one that adds the written bytes to the progress.
    pub(crate) fn count_writes<W: io::Write>(&self, out: W) -> ProgressBarIter<W> {
        self.bar.wrap_write(out)
    }

    /// Wraps a reader in one that adds the read bytes to the progress.
    pub(crate) fn count_reads<R: io::Read>(&self, from: R) -> ProgressBarIter<R> {
        self.bar.wrap_read(from)
    }

    /// Wraps a writer in one that writes lines above the displayed progress on the same terminal.
    pub(crate) fn lines_above<W: io::Write>(&self, out: W) -> LinesAbove<'_, W> {
        LinesAbove { progress: self, out }
    }
}

/// Clears the line and ends the thread that draws it, before anything else is printed.
impl Drop for CommandProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes lines while a [`CommandProgress`] is displayed. The progress is cleared before each write and redrawn below the written
/// lines.
#[derive(Debug)]
pub(crate) struct LinesAbove<'a, W> {
    progress: &'a CommandProgress,
    out: W,
}

impl<W: io::Write> io::Write for LinesAbove<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.bar.suspend(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.progress.bar.suspend(|| self.out.flush())
    }

    /// Writes the formatted text in a single call, so the progress is redrawn only once.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        io::Write::write_all(self, text.to_string().as_bytes())
    }
}

/// Returns `path` with `.partial` appended, which is the name of a file until it is complete. Both names are in the same folder,
/// so renaming replaces the final file atomically.
pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Write as _;

    fn line(unit: ProgressUnit, position: u64, total: Option<u64>, elapsed_ms: u64) -> String {
        let line = ProgressLine {
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
            line(ProgressUnit::Bytes, MIB, Some(4 * MIB), 2_000),
            "Checking: 1.00 MiB of 4.00 MiB, 512.00 KiB/s, 6s left"
        );
        assert_eq!(
            line(ProgressUnit::Items, 120_000, Some(1_000_000), 10_000),
            "Checking: 120,000 of 1,000,000 items, 12,000 items/s, 73s left"
        );
        assert_eq!(
            line(ProgressUnit::Days, 12, Some(180), 60_000),
            "Checking: 12 of 180 days, 12 days/min, 14m left",
            "seldom a day"
        );
        assert_eq!(
            line(ProgressUnit::Accounts, 5, Some(5), 2_000),
            "Checking: 5 of 5 accounts, 150 accounts/min, 0s left"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        assert_eq!(
            line(ProgressUnit::Bytes, 3 << 20, None, 3_000),
            "Checking: 3.00 MiB, 1.00 MiB/s",
            "no total"
        );
        assert_eq!(line(ProgressUnit::Days, 9, None, 999), "Checking: 9 days", "too early");
        for elapsed_ms in [0, 5_000] {
            assert_eq!(
                line(ProgressUnit::Items, 0, Some(7), elapsed_ms),
                "Checking: 0 of 7 items"
            );
        }
        assert_eq!(
            line(ProgressUnit::Items, 9, Some(7), 1_000),
            "Checking: 9 of 7 items, 540 items/min, 0s left",
            "more than there were"
        );
        let endless = line(ProgressUnit::Bytes, 1, Some(u64::MAX), u64::MAX);
        assert!(endless.starts_with("Checking: 1 B of 16.00 EiB, 0 B/s, "), "{endless}");
    }

    #[test]
    fn lines_are_written_as_they_are() {
        let quiet = ProgressArgs { quiet: true };
        let progress = CommandProgress::start(quiet, "Checking", ProgressUnit::Days, Some(2));
        assert!(!progress.is_shown());
        let mut out = Vec::new();
        let mut above = progress.lines_above(&mut out);
        for (account, rows) in [("acme", 7), ("b", 0)] {
            writeln!(above, "{account}  {rows}").unwrap();
        }
        above.flush().unwrap();
        progress.advance(1);
        progress.show("acme");
        assert_eq!(out, b"acme  7\nb  0\n");
    }
}

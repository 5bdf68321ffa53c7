//! `weir log export`: writes rows of the log to a file, which appears only when it is complete.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use indicatif::HumanBytes;

use crate::cli::log::FilterArgs;
use crate::{
    api::{
        log::{ExportLog, LogForm, UtcDay},
        wire::AdminCall,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        one_of,
        output::{CommandProgress, ProgressArgs, ProgressUnit, partial_path},
    },
    domain::ledger::reports,
    edges::clock,
};

/// The mode of the file. Only the user who exports rows can read and write the file.
const MODE: u32 = 0o600;
/// The timeout for the next piece. It is long, because weir may have to search all rows for a single match.
const PIECE_WAIT: Duration = Duration::from_secs(600);
const DAY_SECONDS: i64 = 24 * 3600;
/// The length of a date such as 2026-11-01, in bytes.
const DATE_LENGTH: usize = 10;

/// The arguments of `weir log export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// The format: one JSON object per line, CSV with a header line, or Parquet
    #[arg(long, value_parser = one_of::<LogForm>(&["jsonl", "csv", "parquet"]))]
    pub(crate) format: LogForm,
    /// The file to write. It appears only when it is complete [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

pub(super) async fn run(args: &ExportArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    if args.client.json {
        let what = "an export does not support --json: --format jsonl writes one JSON object per line";
        return Err(AdminClientError::Usage(what.to_owned()));
    }
    let Some(path) = &args.out else {
        return download(args, client, out).await;
    };
    if !args.force && path.exists() {
        let what = format!("cannot write {}: the file exists; --force replaces it", path.display());
        return Err(AdminClientError::Usage(what));
    }
    // The file gets its final name when it is complete, so an incomplete file is never mistaken for a complete one.
    let partial = partial_path(path);
    let failed = |path: &Path, source| AdminClientError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = OpenOptions::new();
    let file = file.write(true).create(true).truncate(true).mode(MODE).open(&partial);
    let mut file = BufWriter::new(file.map_err(|error| failed(&partial, error))?);
    let written = download(args, client, &mut file).await;
    let written = written.and_then(|()| {
        file.flush()?;
        std::fs::rename(&partial, path).map_err(|error| failed(path, error))
    });
    let written = written.map_err(|error| match error {
        AdminClientError::Output(error) => failed(&partial, error),
        other => other,
    });
    if written.is_err() {
        // The partial file is removed, because it is useless. The returned error describes the failure.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

async fn download(args: &ExportArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let asked = AdminCall::from_question(&ExportLog::new(args.format, args.filter.query()));
    let AdminCall { target, .. } = asked.map_err(|error| AdminClientError::Usage(error.to_string()))?;
    let mut rows = RowsWriter::new(args, out);
    let read = client.download_within(PIECE_WAIT, &target, &mut rows).await;
    read.map_err(|error| match error {
        AdminClientError::AnswerLost { why, .. } => {
            let advice = "the output is incomplete: look for the cause in weir's log messages, then export again";
            AdminClientError::Refused(format!("cannot complete the export: {why}; {advice}"))
        }
        other => other,
    })
}

/// Writes an export to `out` and displays the progress. The progress can be computed because rows are in the order of their days,
/// and rows in JSON lines and CSV begin with their time.
struct RowsWriter<'a, W> {
    out: &'a mut W,
    progress: CommandProgress,
    form: LogForm,
    /// The day of the first written row, in days since the Unix epoch. `None` until a row has been written.
    first_day: Option<i64>,
    /// The day after the last day that can have rows, in days since the Unix epoch.
    end_day: i64,
    bytes: u64,
}

impl<'a, W: Write> RowsWriter<'a, W> {
    fn new(args: &ExportArgs, out: &'a mut W) -> Self {
        // If the rows are printed to a terminal, no progress is displayed.
        let quiet = args.progress.quiet || (args.out.is_none() && io::stdout().is_terminal());
        let unit = match args.format {
            LogForm::JsonLines | LogForm::Csv => ProgressUnit::Days,
            LogForm::Parquet => ProgressUnit::Bytes,
        };
        let until = args
            .filter
            .until
            .map_or_else(clock::unix_seconds, |until| until.seconds() - 1);
        Self {
            out,
            progress: CommandProgress::start(ProgressArgs { quiet }, "Exporting", unit, None),
            form: args.format,
            first_day: None,
            end_day: until.div_euclid(DAY_SECONDS) + 1,
            bytes: 0,
        }
    }

    fn show(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if self.form == LogForm::Parquet {
            self.progress.set_position(self.bytes);
            return;
        }
        let Some(day) = latest_day(piece) else { return };
        let reached = reports::day_of_date(day.0);
        let since = |first: i64, day: i64| u64::try_from(day - first).unwrap_or_default();
        let first = *self.first_day.get_or_insert_with(|| {
            self.progress.set_total(since(reached, self.end_day));
            reached
        });
        self.progress.set_position(since(first, reached));
        self.progress.show(format_args!("{day}, {}", HumanBytes(self.bytes)));
    }
}

impl<W: Write> Write for RowsWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        if self.progress.is_shown() {
            self.show(bytes.get(..written).unwrap_or_default());
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the day of the last row that begins in a piece of JSON lines or CSV. `None` if no row begins in the piece.
fn latest_day(piece: &[u8]) -> Option<UtcDay> {
    let of_row = |row: &[u8]| {
        let time = row.strip_prefix(br#"{"time":""#).unwrap_or(row);
        std::str::from_utf8(time.get(..DATE_LENGTH)?)
            .ok()?
            .parse::<UtcDay>()
            .ok()
    };
    piece.rsplit(|byte| *byte == b'\n').find_map(of_row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_row_of_a_piece_tells_its_day() {
        let day = |piece: &str| latest_day(piece.as_bytes()).map(|day| day.to_string());
        let json = "{\"time\":\"2026-11-01T23:59:59Z\",\"account\":\"a\"}\n{\"time\":\"2026-11-02T00:00:00Z\",\"acc";
        let csv = "time,request_id,account\r\n2026-11-01T00:00:00Z,r,a\r\n";
        assert_eq!(day(json).as_deref(), Some("2026-11-02"));
        assert_eq!(day(csv).as_deref(), Some("2026-11-01"));
        let without = "\"output_text\":7}\n{\"time\":null,\"account\":\"a\"}\n{\"time\":\"2026-1";
        for piece in ["", "\n", "time,request_id,account\r\n", without] {
            assert_eq!(day(piece), None, "{piece}");
        }
    }
}

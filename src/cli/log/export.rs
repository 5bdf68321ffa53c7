//! `weir log export`: the log as weir writes it, into a file that is there whole or not at all.

use std::{
    fs::OpenOptions,
    io::{BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::filter::FilterArgs;
use crate::{
    api::{
        log::{ExportLog, LogForm},
        wire::Call,
    },
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs},
        limits::one_of,
        partial_file::partial_path,
    },
};

/// Rows are for the eyes of whoever exports them.
const MODE: u32 = 0o600;
/// How long the next piece may take: all rows may have to be looked through for it.
const PIECE_WAIT: Duration = Duration::from_secs(600);

/// `weir log export`
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub filter: FilterArgs,
    /// One JSON object per line, CSV with a heading, or Parquet
    #[arg(long, value_parser = one_of::<LogForm>(&["jsonl", "csv", "parquet"]))]
    pub(crate) format: LogForm,
    /// Where to write, whole or not at all [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "out")]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

pub(super) async fn run(args: &ExportArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let Some(path) = &args.out else {
        return download(args, client, out).await;
    };
    if !args.force && path.exists() {
        let what = format!("{} is there already; --force replaces it", path.display());
        return Err(AdminClientError::Usage(what));
    }
    // Renamed when it is whole, so that nobody takes a part for all.
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
        // What is left of it is no use, and the error says what happened.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

async fn download(args: &ExportArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let asked = Call::of(&ExportLog::new(args.format, args.filter.asked()));
    let Call { target, .. } = asked.map_err(|error| AdminClientError::Usage(error.to_string()))?;
    let read = client.download_within(PIECE_WAIT, &target, out).await;
    read.map_err(|error| match error {
        AdminClientError::AnswerLost { why, .. } => {
            let advice = "what came of it is not all; weir's own log says why it broke off, then export again";
            AdminClientError::Refused(format!("the export was broken off: {why}; {advice}"))
        }
        other => other,
    })
}

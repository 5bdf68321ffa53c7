//! What a start finds in the segments, and what it does with what cannot be read.
//!
//! Every segment is read from its beginning. What a crash left half written at the very end is cut off. Anything else that
//! is no frame is damage: from there to the end of that segment nothing is believed, the bytes are kept in `quarantine`,
//! and reading goes on with the next segment. There is no search for frames behind the damage: a length that cannot be
//! trusted tells nothing about where the next frame begins.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    sync::Arc,
};

use super::{
    ACKNOWLEDGED, JournalError, NUMBERS, Position,
    contents::Contents,
    folder::Folder,
    frame::{self, Found, Frames, HEADER, Header},
};
use crate::domain::ledger::{Admitted, Change, Checkpoint, Record};

/// What a start found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) contents: Contents,
    pub(super) unsettled: Vec<(Admitted, Option<Checkpoint>)>,
    /// How many damaged parts were put into quarantine.
    pub(super) damaged: u64,
    /// The number of the next segment.
    pub(super) next: u64,
}

/// A request as it was admitted and where, and the last that is known of it.
type Left = (Position, Box<Admitted>, Option<Box<Checkpoint>>);

/// Requests whose end has not been read yet.
#[derive(Default)]
struct Running {
    requests: HashMap<String, Left>,
}

impl Running {
    fn note(&mut self, position: Position, record: Record) {
        match record {
            Record::Admit(admitted) => {
                let request = admitted.row.request_id.clone();
                self.requests.entry(request).or_insert((position, admitted, None));
            }
            Record::Checkpoint(checkpoint) => {
                if let Some((_, _, last)) = self.requests.get_mut(&checkpoint.request) {
                    *last = Some(checkpoint);
                }
            }
            Record::Step { step, .. } => {
                if let Change::Settle(settlement) = step.change {
                    self.requests.remove(&settlement.request);
                }
            }
            Record::Key { .. } | Record::KeyGone { .. } => {}
        }
    }

    fn into_list(self) -> Vec<(Admitted, Option<Checkpoint>)> {
        let mut left: Vec<_> = self.requests.into_values().collect();
        left.sort_unstable_by_key(|(position, ..)| *position);
        left.into_iter()
            .map(|(_, admitted, last)| (*admitted, last.map(|last| *last)))
            .collect()
    }
}

/// Reads all there is.
pub(super) fn replay(folder: &Folder) -> Result<Replayed, JournalError> {
    let failed = |source| JournalError::io(&folder.path, source);
    let mut replayed = Replayed::default();
    let mut running = Running::default();
    numbers(folder, &mut replayed).map_err(failed)?;
    let acknowledged = folder.read(ACKNOWLEDGED).map_err(failed)?;
    let acknowledged = acknowledged
        .and_then(|text| Position::parse(&text))
        .unwrap_or(Position::START);
    let segments = folder.segments().map_err(failed)?;
    replayed.next = segments.last().map_or(1, |last| last + 1).max(acknowledged.segment + 1);
    let last = last_with_data(folder, &segments).map_err(failed)?;
    for number in segments {
        let path = folder.segment(number);
        let failed = |source| JournalError::io(&path, source);
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?);
        let mut head = [0; HEADER];
        frame::read_at(&file, &mut head, 0).map_err(failed)?;
        match frame::check_header(&head, &folder.node, number) {
            Header::Own => {}
            Header::Foreign => return Err(JournalError::Foreign(path)),
            // A crash may leave a new segment without its header.
            Header::Damaged if head.iter().all(|byte| *byte == 0) => {}
            Header::Damaged => {
                tracing::error!(segment = %path.display(), "the journal segment's header is damaged, its records are read all the same");
            }
        }
        let end = read(
            folder,
            number,
            &file,
            number == last,
            &mut replayed,
            |replayed, position, end, record, at_ms| {
                if let Record::Step { account, step } = &record
                    && position < acknowledged
                {
                    replayed.contents.accounts.known(account.clone(), step.seq);
                }
                replayed.contents.note(&record, position, end, at_ms, false);
                running.note(position, record);
            },
        )
        .map_err(failed)?;
        if end <= HEADER as u64 {
            fs::remove_file(&path).map_err(failed)?;
            continue;
        }
        let longer = file.metadata().map_err(failed)?.len() > end;
        if longer {
            file.set_len(end).map_err(failed)?;
        }
        // What the process before had no time to sync.
        if longer || number == last {
            file.sync_all().map_err(failed)?;
        }
        let summary = replayed.contents.segments.entry(number).or_default();
        (summary.end, summary.bytes) = (end, end);
    }
    replayed.unsettled = running.into_list();
    Ok(replayed)
}

/// Reads a segment; says where its good records end, having put what lies behind into quarantine.
fn read(
    folder: &Folder,
    number: u64,
    file: &Arc<File>,
    last: bool,
    replayed: &mut Replayed,
    mut each: impl FnMut(&mut Replayed, Position, u64, Record, i64),
) -> io::Result<u64> {
    let meta = file.metadata()?;
    let at_ms = meta.mtime().saturating_mul(1000);
    let mut frames = Frames::new(Arc::clone(file), number, HEADER as u64, meta.len().max(HEADER as u64));
    loop {
        let end = frames.at();
        let (at, record) = match frames.next()? {
            Found::Frame { at, payload } => (at, serde_json::from_slice::<Record>(payload)),
            Found::End if frame::zeros_from(file, end)? => return Ok(end),
            Found::Bad { claimed } if last && torn(file, end, claimed)? => return Ok(end),
            Found::End | Found::Bad { .. } => {
                replayed.damaged += 1;
                quarantine(folder, number, file, end, meta.len())?;
                return Ok(end);
            }
        };
        match record {
            Ok(record) => {
                let position = Position {
                    segment: number,
                    offset: at,
                };
                each(replayed, position, frames.at(), record, at_ms);
            }
            Err(error) => {
                tracing::error!(segment = number, offset = at, %error, "a journal record cannot be understood and is passed over");
            }
        }
    }
}

/// Whether a frame that is none is what a crash leaves of the last one: it lacks its end, and nothing stands behind it. A
/// payload is JSON, so it has no zeros of its own, while whole frames behind it would have some.
fn torn(file: &File, at: u64, claimed: u64) -> io::Result<bool> {
    let payload = at.saturating_add(frame::HEAD as u64);
    match frame::find(file, payload, at.saturating_add(claimed), |byte| byte == 0)? {
        Some(lacking) => frame::zeros_from(file, lacking),
        None => Ok(false),
    }
}

/// Keeps the bytes of a segment from `from` to `end`, and says so.
pub(super) fn quarantine(folder: &Folder, number: u64, file: &File, from: u64, end: u64) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
    let read = frame::read_at(file, &mut bytes, from)?;
    bytes.truncate(read);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(used);
    let kept = folder.quarantine(number, from, &bytes)?;
    tracing::error!(
        segment = %folder.segment(number).display(), from, bytes = used, kept = %kept.display(),
        "a part of the journal is damaged: the records in front of it are used, it is kept aside, requests recorded in it may be unbilled",
    );
    Ok(())
}

/// The last segment that has a frame; 0 if none has.
fn last_with_data(folder: &Folder, segments: &[u64]) -> io::Result<u64> {
    for number in segments.iter().rev() {
        let mut head = [0; frame::HEAD];
        frame::read_at(&File::open(folder.segment(*number))?, &mut head, HEADER as u64)?;
        if head.iter().any(|byte| *byte != 0) {
            return Ok(*number);
        }
    }
    Ok(0)
}

/// Takes over the numbers of accounts whose segments are gone.
fn numbers(folder: &Folder, replayed: &mut Replayed) -> io::Result<()> {
    let Some(text) = folder.read(NUMBERS)? else {
        return Ok(());
    };
    let (sum, body) = text.split_once('\n').unwrap_or_default();
    let whole = sum == format!("{:08x}", crc32fast::hash(body.as_bytes()));
    let known = serde_json::from_str::<HashMap<String, u64>>(body)
        .ok()
        .filter(|_| whole);
    if known.is_none() {
        replayed.damaged += 1;
        tracing::error!(
            file = %folder.path.join(NUMBERS).display(),
            "the file of the accounts' last numbers is damaged, the numbers go on from what the store and the segments say",
        );
    }
    for (account, last) in known.into_iter().flatten() {
        replayed.contents.accounts.known(account, last);
    }
    Ok(())
}

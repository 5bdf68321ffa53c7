//! Reads the segments at a start, and handles what cannot be read.
//!
//! A segment whose steps are all acknowledged is taken over from its index ([`index`]); the records of its open
//! requests are read where the index says. Every other segment is read from its beginning. A record that a crash left
//! incomplete at the very end is cut off. Anything else that is no frame is damage: its bytes are saved in
//! `quarantine`, and reading continues with the next sound frame ([`damage`]).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    sync::Arc,
};

use smol_str::SmolStr;

use crate::domain::ledger::{Admitted, Checkpoint, Record};
use crate::journal::{
    checked,
    contents::Contents,
    damage,
    error::JournalError,
    files::Files,
    folder::{ACKNOWLEDGED, Folder, NUMBERS},
    frame::{self, Found, Frames, HEADER, Header},
    gaps::Gaps,
    index,
    position::Position,
};

/// What reading the journal at a start has found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) contents: Contents,
    pub(super) unsettled: Vec<Unsettled>,
    /// Those of them whose settlements damage may have taken.
    pub(super) possibly_settled: Vec<PossiblySettled>,
    gaps: Gaps,
    /// How many damaged parts were put into quarantine.
    pub(super) damaged: u64,
    /// The number of the next segment.
    pub(super) next: u64,
    /// The segments that were read wholly; of the others their indexes were.
    pub(super) read: Vec<u64>,
}

/// A request that was running, and the last that is known of it.
type Unsettled = (Admitted, Option<Checkpoint>);

/// The same with the place of its admission.
type Admission = (Position, Unsettled);

/// A request whose settlement is perhaps among the steps that damage has taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PossiblySettled {
    /// The request, with the last that is known of it.
    pub request: Unsettled,
    /// The number of the missing step: a store that has applied it has charged the request.
    pub step: u64,
}

/// Takes over all there is.
pub(super) fn replay(folder: &Folder) -> Result<Replayed, JournalError> {
    let mut distrusted = BTreeSet::new();
    let mut damaged = 0;
    loop {
        let mut replayed = pass(folder, &distrusted)?;
        damaged += replayed.damaged;
        let (unsettled, missing) = unsettled(folder, &replayed.contents)?;
        if missing.is_empty() {
            for (at, request) in unsettled {
                match replayed.gaps.settled_by(&request.0.row.account, at) {
                    Some(step) => replayed.possibly_settled.push(PossiblySettled { request, step }),
                    None => replayed.unsettled.push(request),
                }
            }
            replayed.damaged = damaged;
            return Ok(replayed);
        }
        for number in missing {
            // Its index names records that it does not have: it is read, as all others were.
            if !distrusted.insert(number) {
                let path = folder.segment(number);
                return Err(JournalError::io(&path, io::ErrorKind::InvalidData.into()));
            }
        }
    }
}

/// Takes over every segment, by its index where that suffices and is not distrusted.
fn pass(folder: &Folder, distrusted: &BTreeSet<u64>) -> Result<Replayed, JournalError> {
    let failed = |source| JournalError::io(&folder.path, source);
    let mut replayed = Replayed::default();
    let numbers_damaged = numbers(folder, &mut replayed.contents).map_err(failed)?;
    // A second pass finds the same.
    replayed.damaged = u64::from(numbers_damaged && distrusted.is_empty());
    let acknowledged = folder.read(ACKNOWLEDGED).map_err(failed)?;
    let acknowledged = acknowledged
        .and_then(|text| Position::parse(&text))
        .unwrap_or(Position::START);
    let segments = folder.segments().map_err(failed)?;
    replayed.next = segments.last().map_or(1, |last| last + 1).max(acknowledged.segment + 1);
    let last = last_with_data(folder, &segments).map_err(failed)?;
    for number in segments {
        // Where steps stand that are not acknowledged, only the segment itself says.
        let index = (number < acknowledged.segment && !distrusted.contains(&number))
            .then(|| index::read(folder, number))
            .flatten();
        match index {
            Some(index) => {
                replayed.gaps.indexed(number, &index.steps);
                replayed.contents.indexed(number, index);
            }
            None => segment(folder, number, number == last, acknowledged, &mut replayed)?,
        }
    }
    Ok(replayed)
}

/// Reads a segment, cuts it to its good records, and has it synced.
fn segment(
    folder: &Folder,
    number: u64,
    last: bool,
    acknowledged: Position,
    replayed: &mut Replayed,
) -> Result<(), JournalError> {
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
    let meta = file.metadata().map_err(failed)?;
    let written_ms = meta
        .mtime()
        .saturating_mul(1000)
        .saturating_add(meta.mtime_nsec() / 1_000_000);
    let begin = Position {
        segment: number,
        offset: HEADER as u64,
    };
    replayed.contents.begin(begin, 0, written_ms);
    let end = read(
        folder,
        number,
        &file,
        last,
        replayed,
        |replayed, position, end, record| {
            if let Record::Step { account, step } = record {
                replayed.gaps.step(account, step.seq, position);
                if position < acknowledged {
                    replayed.contents.accounts.known(account.clone(), step.seq, step.seq);
                }
            }
            replayed.contents.note(record, position, end, written_ms, false);
        },
    )
    .map_err(failed)?;
    if end <= HEADER as u64 {
        replayed.contents.segments.remove(&number);
        return folder.remove(number).map_err(failed);
    }
    replayed.read.push(number);
    replayed.contents.seal();
    let longer = meta.len() > end;
    if longer {
        index::cut(&file, end, written_ms).map_err(failed)?;
    }
    // What the process before had no time to sync.
    if longer || last {
        file.sync_all().map_err(failed)?;
    }
    if let Some(summary) = replayed.contents.segments.get_mut(&number) {
        (summary.end, summary.bytes) = (end, end);
    }
    Ok(())
}

/// The requests that have not ended, each with the place of its admission and the last that is known of it; or the segments
/// that lack records of them.
fn unsettled(folder: &Folder, contents: &Contents) -> Result<(Vec<Admission>, BTreeSet<u64>), JournalError> {
    let mut requests: Vec<_> = contents.running.iter().collect();
    requests.sort_unstable_by_key(|(_, request)| request.admitted);
    let mut files = Files::default();
    let mut missing = BTreeSet::new();
    let mut found = Vec::new();
    // One record has the last of many requests.
    let mut reached: BTreeMap<Position, HashMap<&str, usize>> = BTreeMap::new();
    for (id, request) in requests {
        let Some(Record::Admit(admitted)) = files.record(folder, request.admitted)? else {
            missing.insert(request.admitted.segment);
            continue;
        };
        if let Some(position) = request.checkpoint {
            reached.entry(position).or_default().insert(id, found.len());
        }
        found.push((request.admitted, (*admitted, None)));
    }
    for (position, mut requests) in reached {
        if let Some(Record::Checkpoints(checkpoints)) = files.record(folder, position)? {
            for checkpoint in checkpoints {
                let index = requests.remove(checkpoint.request.as_str());
                if let Some((_, (_, last))) = index.and_then(|index| found.get_mut(index)) {
                    *last = Some(checkpoint);
                }
            }
        }
        if !requests.is_empty() {
            missing.insert(position.segment);
        }
    }
    Ok((found, missing))
}

/// Reads a segment; says where its good records end, having put what is damaged into quarantine.
fn read(
    folder: &Folder,
    number: u64,
    file: &Arc<File>,
    last: bool,
    replayed: &mut Replayed,
    mut each: impl FnMut(&mut Replayed, Position, u64, &Record),
) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut frames = Frames::new(Arc::clone(file), number, HEADER as u64, length.max(HEADER as u64));
    loop {
        let end = frames.at();
        let place = Position {
            segment: number,
            offset: end,
        };
        let (at, record) = match frames.next_frame()? {
            Found::Frame { payload, .. } if frame::is_nothing(payload) => {
                replayed.gaps.damaged(place);
                continue;
            }
            Found::Frame { at, payload } => (at, Record::read(payload)),
            Found::End if frame::zeros_from(file, end)? => return Ok(end),
            Found::Bad { claimed } if last && torn(file, end, claimed)? => return Ok(end),
            Found::End | Found::Bad { .. } => {
                replayed.damaged += 1;
                replayed.gaps.damaged(place);
                if frames.skip_damage()? {
                    damage::cover(folder, number, file, end, frames.at())?;
                    continue;
                }
                damage::give_up(folder, number, file, end, length)?;
                return Ok(end);
            }
        };
        match record {
            Some(record) => each(replayed, place, frames.at(), &record),
            None => {
                tracing::error!(
                    segment = number,
                    offset = at,
                    "a journal record cannot be understood and is passed over"
                );
            }
        }
    }
}

/// Whether a frame that is none is what a crash leaves of the last one: it lacks its end, and nothing stands behind it. A
/// payload has no zeros of its own ([`crate::domain::ledger::journaled`]), while the heads of whole frames behind it have some.
fn torn(file: &File, at: u64, claimed: u64) -> io::Result<bool> {
    let payload = at.saturating_add(frame::HEAD as u64);
    match frame::first_zero(file, payload, at.saturating_add(claimed))? {
        Some(lacking) => frame::zeros_from(file, lacking),
        None => Ok(false),
    }
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

/// Takes over the numbers of accounts whose segments may be gone. Says whether their file is damaged.
fn numbers(folder: &Folder, contents: &mut Contents) -> io::Result<bool> {
    let Some(text) = folder.read(NUMBERS)? else {
        return Ok(false);
    };
    let Some(known) =
        checked::body(&text).and_then(|body| serde_json::from_str::<HashMap<SmolStr, (u64, u64)>>(body).ok())
    else {
        tracing::error!(
            file = %folder.path.join(NUMBERS).display(),
            "the file of the accounts' last numbers is damaged, the numbers go on from what the store and the segments say",
        );
        return Ok(true);
    };
    for (account, (last, acknowledged)) in known {
        contents.accounts.known(account, last, acknowledged);
    }
    Ok(false)
}

//! What weir reads from disk: frames and records of the journal, providers' files, price lists.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use weir::parts::frame::{FrameOutcome, FrameReader, HEAD, HEADER, seal};
use weir::parts::{PriceList, RuleFile, compile, reread};

/// The number of the segment that the frames are said to be in.
const SEGMENT: u64 = 7;

/// A segment: whatever the bytes are, reading them ends. Frames that were written are read, and when one is damaged, the
/// others still are.
pub(crate) fn journal_frames(data: &[u8]) {
    let file = Arc::new(tempfile::tempfile().expect("a file"));
    let read = payloads(&file, data);
    assert!(read.iter().map(|(_, payload)| payload.len() + HEAD).sum::<usize>() <= data.len());
    let records: Vec<&[u8]> = data
        .chunks(usize::from(data.first().copied().unwrap_or_default()) + 1)
        .collect();
    let mut segment = vec![0; HEADER];
    let mut places = Vec::new();
    for record in &records {
        let at = segment.len();
        segment.extend_from_slice(&[0; HEAD]);
        segment.extend_from_slice(record);
        seal(&mut segment[at..], SEGMENT, at as u64).expect("a record has a length");
        places.push(at);
    }
    let written: Vec<(u64, Vec<u8>)> = places
        .iter()
        .zip(&records)
        .map(|(at, record)| (*at as u64, record.to_vec()))
        .collect();
    assert_eq!(payloads(&file, &segment), written);
    let Some(last) = data.last() else { return };
    let damaged = usize::from(*last) % records.len();
    // Its checksum: a length that says too much would hide the frames behind it from nobody either, but may end the data.
    segment[places[damaged] + 4] ^= 1;
    let others: Vec<_> = (0..records.len())
        .filter(|number| *number != damaged)
        .map(|number| written[number].clone())
        .collect();
    assert_eq!(payloads(&file, &segment), others, "frame {damaged} is damaged");
}

/// The frames in these bytes, with their places.
fn payloads(file: &Arc<File>, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    file.set_len(0).expect("an empty file");
    file.write_all_at(bytes, 0).expect("a written file");
    let mut frames = FrameReader::new(Arc::clone(file), SEGMENT, HEADER as u64, bytes.len() as u64);
    let (mut all, mut behind) = (Vec::new(), HEADER as u64);
    loop {
        let is_bad = match frames.next_frame().expect("a readable file") {
            FrameOutcome::Frame { at, payload } => {
                assert!(at >= behind && !payload.is_empty(), "frames go forward");
                behind = at + (HEAD + payload.len()) as u64;
                all.push((at, payload.to_vec()));
                false
            }
            FrameOutcome::End => return all,
            FrameOutcome::Bad { .. } => true,
        };
        if is_bad && !frames.skip_damage().expect("a readable file") {
            return all;
        }
    }
}

/// A record: whatever the bytes are, reading them ends. One that is read is written without a zero, and as what is read as the
/// same.
pub(crate) fn journal_records(data: &[u8]) {
    if let Some(again) = reread(data) {
        assert!(!again.contains(&0));
        assert_eq!(reread(&again).as_ref(), Some(&again));
    }
}

/// A provider's file: taken or refused, and each fault names a line that it has.
pub(crate) fn provider_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = RuleFile {
        name: "some.toml".to_owned(),
        text: text.to_owned(),
    };
    if let Err(faults) = compile(&file) {
        assert!(!faults.is_empty());
        for fault in faults {
            assert_told(&fault.file, fault.line, &fault.message, text);
        }
    }
}

/// A price list: as a provider's file, and what was read once is read again in the same way.
pub(crate) fn price_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match PriceList::read("some.toml", text) {
        Ok(list) => assert_eq!(PriceList::read("some.toml", text), Ok(list)),
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert_told(&fault.file, fault.line, &fault.message, text);
            }
        }
    }
}

#[track_caller]
fn assert_told(file: &str, line: Option<usize>, message: &str, text: &str) {
    assert_eq!(file, "some.toml");
    assert!(!message.is_empty());
    // A fault at the end may be told of the line behind the last one.
    let lines = text.split('\n').count();
    assert!(
        line.is_none_or(|line| (1..=lines).contains(&line)),
        "line {line:?} of {lines}: {message}"
    );
}

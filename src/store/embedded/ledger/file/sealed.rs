//! Values of the ledger's file, each behind its checksum.

use serde::{Serialize, de::DeserializeOwned};

use crate::domain::ledger::daily_sums::Sums;

/// The size of the checksum before a value.
const CHECKSUM_BYTES: usize = 4;

/// A value as JSON, behind its checksum.
pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>, redb::Error> {
    seal_with(|json| serde_json::to_writer(json, value))
}

/// Daily sums behind their checksum: as bytes, because a page reads hundreds of thousands of them.
pub(super) fn seal_sums(sums: &Sums) -> Result<Vec<u8>, redb::Error> {
    seal_with(|bytes| {
        sums.write_bytes(bytes);
        Ok(())
    })
}

fn seal_with(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> Result<Vec<u8>, redb::Error> {
    let mut sealed = vec![0; CHECKSUM_BYTES];
    write(&mut sealed).map_err(|error| redb::Error::Io(error.into()))?;
    let checksum = crc32fast::hash(sealed.get(CHECKSUM_BYTES..).unwrap_or_default());
    if let Some(place) = sealed.first_chunk_mut::<CHECKSUM_BYTES>() {
        *place = checksum.to_le_bytes();
    }
    Ok(sealed)
}

/// The value; `None` if it is not as it was sealed.
pub(super) fn unseal<T: DeserializeOwned>(sealed: &[u8]) -> Option<T> {
    serde_json::from_slice(verified_bytes(sealed)?).ok()
}

/// The daily sums; `None` if they are not as they were sealed.
pub(super) fn unseal_sums(sealed: &[u8]) -> Option<Sums> {
    Sums::read_bytes(verified_bytes(sealed)?)
}

/// The bytes behind a checksum, if it matches.
fn verified_bytes(sealed: &[u8]) -> Option<&[u8]> {
    let (checksum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (crc32fast::hash(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

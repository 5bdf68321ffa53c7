//! Values as the ledger's file has them behind a checksum: JSON, and bytes of daily sums, of which a page reads 100,000s.

use serde::{Serialize, de::DeserializeOwned};

use crate::domain::ledger::daily_sums::Sums;

/// The bytes of a checksum before a value.
const CHECKSUM_BYTES: usize = 4;

/// A value as JSON behind its checksum.
pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>, redb::Error> {
    sealed(|json| serde_json::to_writer(json, value))
}

/// The same of daily sums.
pub(super) fn seal_sums(sums: &Sums) -> Result<Vec<u8>, redb::Error> {
    sealed(|bytes| {
        sums.write_bytes(bytes);
        Ok(())
    })
}

fn sealed(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> Result<Vec<u8>, redb::Error> {
    let mut sealed = vec![0; CHECKSUM_BYTES];
    write(&mut sealed).map_err(|error| redb::Error::Io(error.into()))?;
    let checksum = crc32fast::hash(sealed.get(CHECKSUM_BYTES..).unwrap_or_default());
    if let Some(place) = sealed.first_chunk_mut::<CHECKSUM_BYTES>() {
        *place = checksum.to_le_bytes();
    }
    Ok(sealed)
}

/// The value; `None`: it is not what was sealed.
pub(super) fn unseal<T: DeserializeOwned>(sealed: &[u8]) -> Option<T> {
    serde_json::from_slice(whole(sealed)?).ok()
}

/// The daily sums; `None`: they are not what was sealed.
pub(super) fn unseal_sums(sealed: &[u8]) -> Option<Sums> {
    Sums::read_bytes(whole(sealed)?)
}

/// The bytes behind their checksum, which holds.
fn whole(sealed: &[u8]) -> Option<&[u8]> {
    let (checksum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (crc32fast::hash(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

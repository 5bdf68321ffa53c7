//! A cache of the ends of objects, by the names of the files.

use std::{collections::BTreeMap, io};

use parking_lot::Mutex;

use super::{place::FileName, s3::BucketObject};

/// The maximum number of ends in memory. Each has at most 64 KiB.
const FOOTERS_MAX: usize = 128;

/// The ends of files in a bucket, which describe where in them the rows are. If there are too many, those of the latest days.
/// They never become invalid, because a file's name determines its bytes.
#[derive(Debug, Default)]
pub(super) struct FooterCache(Mutex<BTreeMap<FileName, BucketObject>>);

impl FooterCache {
    /// The object of a file. Its end is read with `open` if it is not known.
    pub(super) fn object(
        &self,
        place: &FileName,
        open: impl FnOnce() -> io::Result<BucketObject>,
    ) -> io::Result<BucketObject> {
        let known = self.0.lock().get(place).and_then(BucketObject::with_end_only);
        if let Some(known) = known {
            return Ok(known);
        }
        let object = open()?;
        if let Some(end) = object.with_end_only() {
            let mut known = self.0.lock();
            if known.len() >= FOOTERS_MAX {
                // Removes the oldest day's: reading the same files again and again still finds most, and today's are read most.
                known.pop_first();
            }
            known.insert(place.clone(), end);
        }
        Ok(object)
    }

    /// Forgets the other files.
    pub(super) fn retain(&self, is_kept: impl Fn(&FileName) -> bool) {
        self.0.lock().retain(|place, _| is_kept(place));
    }
}

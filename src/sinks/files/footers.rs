//! The ends of objects, which say where in them what is, by the names of the files: a name stands for its bytes.

use std::{collections::BTreeMap, io};

use parking_lot::Mutex;

use super::{place::Place, s3::Object};

/// The most ends that are kept. Each has 64 KiB at most.
const FOOTERS_MAX: usize = 128;

/// The ends of the files that were opened last, of the latest days where there are more.
#[derive(Debug, Default)]
pub(super) struct Footers(Mutex<BTreeMap<Place, Object>>);

impl Footers {
    /// The object of a file. Its end is read with `open` where it is not known.
    pub(super) fn object(&self, place: &Place, open: impl FnOnce() -> io::Result<Object>) -> io::Result<Object> {
        let known = self.0.lock().get(place).and_then(Object::with_end_alone);
        if let Some(known) = known {
            return Ok(known);
        }
        let object = open()?;
        if let Some(end) = object.with_end_alone() {
            let mut known = self.0.lock();
            if known.len() >= FOOTERS_MAX {
                // Whoever reads the same files again and again finds most of them, and today's are asked for most.
                known.pop_first();
            }
            known.insert(place.clone(), end);
        }
        Ok(object)
    }

    /// Forgets the files that are not to be kept.
    pub(super) fn retain(&self, is_kept: impl Fn(&Place) -> bool) {
        self.0.lock().retain(|place, _| is_kept(place));
    }
}

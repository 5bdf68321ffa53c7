//! Providers that an operator has switched off at run time. Each node keeps its own small file, so that a restart does
//! not switch them on again.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// The providers that an operator has switched off, kept in a file.
#[derive(Debug)]
pub(crate) struct Switches {
    off: ArcSwap<BTreeSet<String>>,
    path: PathBuf,
    /// Held while the file is written, so that two changes do not lose one.
    writing: Mutex<()>,
}

impl Switches {
    /// Reads the file; without one all are on.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let off: BTreeSet<String> = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::other(format!("{}: {error}; delete it to start anew", path.display())))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            off: ArcSwap::from_pointee(off),
            path: path.to_owned(),
            writing: Mutex::default(),
        })
    }

    /// Whether a provider is switched off.
    pub(crate) fn is_off(&self, provider: &str) -> bool {
        self.off.load().contains(provider)
    }

    /// Switches a provider on or off; in force for the next request. True when that changed anything.
    ///
    /// # Errors
    /// The file cannot be written; then nothing has changed.
    pub(crate) fn set(&self, provider: &str, on: bool) -> io::Result<bool> {
        let _writing = self.writing.lock();
        let mut off = BTreeSet::clone(&self.off.load());
        let changed = if on {
            off.remove(provider)
        } else {
            off.insert(provider.to_owned())
        };
        if changed {
            // Renamed into place, so that a crash leaves the old or the new.
            let partial = self.path.with_extension("partial");
            std::fs::write(&partial, serde_json::to_vec(&off)?)?;
            std::fs::rename(&partial, &self.path)?;
            self.off.store(off.into());
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("providers-off.json");
        let switches = Switches::open(&path).unwrap();
        assert!(switches.set("a", false).unwrap() && switches.is_off("a") && !switches.is_off("b"));
        assert!(!switches.set("a", false).unwrap());
        let again = Switches::open(&path).unwrap();
        assert!(again.is_off("a") && again.set("a", true).unwrap() && !again.is_off("a"));
        assert!(!Switches::open(&path).unwrap().is_off("a"));
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("providers-off.json");
        std::fs::write(&path, "no").unwrap();
        assert!(Switches::open(&path).unwrap_err().to_string().contains("delete it"));
        assert_eq!(std::fs::read(&path).unwrap(), b"no");
    }
}

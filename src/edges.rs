//! Small parts that connect the gateway to the operating system and the network: clock, name resolver, memory budget for bodies,
//! connection slots, switches for providers, rate limits of clients, low-priority threads and a web client.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod connection_slots;
pub(crate) mod limiter;
pub(crate) mod low_priority;
pub(crate) mod resolver;
pub(crate) mod web_client;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// The providers that an operator has switched off at run time. Each node stores the set in a small file, so a restart does not
/// change it.
#[derive(Debug)]
pub(crate) struct ProviderSwitches {
    off: ArcSwap<BTreeSet<String>>,
    path: PathBuf,
    /// Locked while the file is written, so that no concurrent change is lost.
    writing: Mutex<()>,
}

impl ProviderSwitches {
    /// Reads the file. If it does not exist, all providers are on.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let off: BTreeSet<String> = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                io::Error::other(format!(
                    "cannot parse {}: {error}; delete this file to switch all providers on",
                    path.display()
                ))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            off: ArcSwap::from_pointee(off),
            path: path.to_owned(),
            writing: Mutex::default(),
        })
    }

    /// Whether an operator has switched `provider` off.
    pub(crate) fn is_off(&self, provider: &str) -> bool {
        self.off.load().contains(provider)
    }

    /// Turns a provider on or off. The change takes effect with the next request. Returns whether the state has changed.
    ///
    /// # Errors
    /// The file cannot be written. In that case, nothing has changed.
    pub(crate) fn set(&self, provider: &str, on: bool) -> io::Result<bool> {
        let _writing = self.writing.lock();
        let mut off = BTreeSet::clone(&self.off.load());
        let changed = if on {
            off.remove(provider)
        } else {
            off.insert(provider.to_owned())
        };
        if changed {
            // The new file is renamed into place, so a crash leaves either the complete old file or the complete new one.
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
        let switches = ProviderSwitches::open(&path).unwrap();
        assert!(switches.set("a", false).unwrap() && switches.is_off("a") && !switches.is_off("b"));
        assert!(!switches.set("a", false).unwrap());
        let again = ProviderSwitches::open(&path).unwrap();
        assert!(again.is_off("a") && again.set("a", true).unwrap() && !again.is_off("a"));
        assert!(!ProviderSwitches::open(&path).unwrap().is_off("a"));
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("providers-off.json");
        std::fs::write(&path, "no").unwrap();
        assert!(
            ProviderSwitches::open(&path)
                .unwrap_err()
                .to_string()
                .contains("delete this file")
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"no");
    }
}

//! weir's logic without input or output. All functions compute their results from their arguments, including the time and random
//! numbers. The module also has the hash map and the record version that several submodules use.

pub(crate) mod catalogue;
pub(crate) mod faults;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod money;
pub(crate) mod rules;
pub(crate) mod settings;
pub(crate) mod sign_in;
pub(crate) mod strict_toml;
pub(crate) mod translation;
pub(crate) mod wire;

use std::{collections::HashMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use thiserror::Error;

/// A hash map for keys that weir or an operator chooses, such as names of accounts and models, or ids of API keys and requests.
/// Hashing takes a fifth of the instructions of the standard hash function. Each map has a random seed, so a client that
/// influences the keys still cannot force collisions (<https://github.com/tkaitchuck/aHash>, "Goals and Non-Goals").
pub(crate) type QuickMap<K, V> = HashMap<K, V, ahash::RandomState>;

/// The number of hexadecimal digits of the checksum in a displayed [`Version`].
const CHECK_DIGITS: usize = 8;

/// The version of a stored record that operators change, such as an account. A change names the version on which it is based, so
/// it cannot overwrite a concurrent change. A version consists of a revision, which is the number of changes so far, and a
/// checksum of the record's content. The checksum is needed because a failover of the store can lose a change, and the next
/// change then gets the same revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    revision: u64,
    check: u32,
}

/// The error that a string is not a [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not a version: a version is a number, a hyphen and 8 hexadecimal digits, such as 17-5f3a9c21; the command `show` prints it"
)]
pub struct VersionError;

impl Version {
    /// Creates the version for a revision, where `check` is the checksum of the record's content.
    pub const fn new(revision: u64, check: u32) -> Self {
        Self { revision, check }
    }
}

/// Writes the version as `REVISION-CHECKSUM`, such as `17-5f3a9c21`.
impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}-{:0CHECK_DIGITS$x}", self.revision, self.check)
    }
}

/// Parses exactly the form that [`Version`] displays; other spellings of the same numbers are errors.
impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (revision, check) = text.split_once('-').ok_or(VersionError)?;
        let revision = revision.parse().map_err(|_| VersionError)?;
        let check = u32::from_str_radix(check, 16).map_err(|_| VersionError)?;
        let version = Self { revision, check };
        (version.to_string() == text).then_some(version).ok_or(VersionError)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_version_is_a_revision_and_eight_digits() {
        assert_eq!(Version::new(17, 0x5f).to_string(), "17-0000005f");
        for bad in [
            "",
            "17",
            "17-",
            "-0000005f",
            "17-5f",
            "17-0000005F",
            "17-00000005f",
            "+17-0000005f",
            "017-0000005f",
            "17-+000005f",
            " 17-0000005f",
            "17-0000005f ",
            "18446744073709551616-00000000",
            "17-0000005f-1",
        ] {
            assert_eq!(bad.parse::<Version>(), Err(VersionError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(revision: u64, check: u32) {
            let version = Version::new(revision, check);
            prop_assert_eq!(version.to_string().parse(), Ok(version));
            let text = serde_json::to_string(&version).unwrap();
            prop_assert_eq!(&text, &format!("\"{version}\""));
            prop_assert_eq!(serde_json::from_str::<Version>(&text).unwrap(), version);
        }
    }
}

//! A version of what operators change: by it they say which state of a thing a change was decided on.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// A state of a key, `17-5f3a9c21`: its revision, and a check of its content. The revision alone would not do: where a failover
/// has lost revision 17, another change becomes revision 17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    revision: u64,
    check: u32,
}

/// A text that is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a version is a number and 8 hexadecimal digits, such as 17-5f3a9c21, as `weir key show` shows it")]
pub struct VersionError;

impl Version {
    /// The version of this content at this revision.
    pub fn new(revision: u64, content: &[u8]) -> Self {
        Self {
            revision,
            check: crc32fast::hash(content),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{:08x}", self.revision, self.check)
    }
}

/// Reads what `Display` wrote and nothing else, so that one version has one text.
impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (revision, check) = text.split_once('-').ok_or(VersionError)?;
        let version = Self {
            revision: revision.parse().map_err(|_| VersionError)?,
            check: u32::from_str_radix(check, 16).map_err(|_| VersionError)?,
        };
        let is_as_written = version.to_string() == text;
        is_as_written.then_some(version).ok_or(VersionError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_version_has_one_text() {
        assert_eq!(Version::new(17, b"123456789").to_string(), "17-cbf43926");
        let wrong = [
            "",
            "17",
            "17-",
            "-5f3a9c21",
            "017-5f3a9c21",
            "+17-5f3a9c21",
            "17-5F3A9C21",
            "17-5f3a9c2",
            "17-05f3a9c21",
            " 17-5f3a9c21",
            "17-5f3a9c21-",
            "18446744073709551616-5f3a9c21",
            "\"17-5f3a9c21\"",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Version>(), Err(VersionError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_version_is_read_as_it_was_written(revision: u64, content: Vec<u8>) {
            let version = Version::new(revision, &content);
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }
    }
}

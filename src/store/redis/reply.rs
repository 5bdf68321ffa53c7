//! The replies of the store's scripts: a status, the generation, and the results, all as text.

use std::vec::IntoIter;

use crate::domain::keys::key::KeyRecord;
use crate::domain::keys::secret::KeyDigest;
use crate::store::{Changes, KeyView, StoreError};

pub(super) struct ScriptReply {
    pub(super) generation: String,
    conflict: bool,
    rest: IntoIter<String>,
}

impl ScriptReply {
    /// Reads a reply. A status that says why the script refused becomes an error.
    pub(super) fn read(texts: Vec<String>) -> Result<Self, StoreError> {
        let mut texts = texts.into_iter();
        let status = texts.next().unwrap_or_default();
        let generation = texts.next().unwrap_or_default();
        let reply = |conflict| Self {
            generation,
            conflict,
            rest: texts.clone(),
        };
        match status.as_str() {
            "ok" => Ok(reply(false)),
            "conflict" => Ok(reply(true)),
            "not_found" => Err(StoreError::NotFound),
            "duplicate" => Err(StoreError::Duplicate),
            "deleted" => Err(StoreError::Deleted),
            "lost" => Err(StoreError::Unavailable(
                "redis was emptied or replaced while this node was running; restore its data with `weir store restore`, or restart weir to accept another Redis that is set up"
                    .to_owned(),
            )),
            "uninitialised" => Err(StoreError::Unavailable(
                "this Redis is not set up for weir, or was emptied; run `weir store init` if it is new, otherwise `weir store restore`"
                    .to_owned(),
            )),
            "corrupt" => Err(StoreError::Corrupt(texts.next().unwrap_or_default())),
            _ => Err(StoreError::Corrupt("a script in redis returned a reply with an unknown status".to_owned())),
        }
    }

    /// Whether another call has changed the record meanwhile.
    pub(super) fn is_conflict(&self) -> bool {
        self.conflict
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.rest
            .next()
            .ok_or_else(|| StoreError::Corrupt("a script in redis returned a reply that is too short".to_owned()))
    }

    pub(super) fn texts(self) -> IntoIter<String> {
        self.rest
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        self.text()?
            .parse()
            .map_err(|_| StoreError::Corrupt("the store's version in redis is not a number".to_owned()))
    }

    /// Reads keys, each from a record, a last use and a digest.
    pub(super) fn views(mut self) -> Result<Vec<KeyView>, StoreError> {
        let mut views = Vec::new();
        while let Some(text) = self.rest.next() {
            views.push(view(&text, &self.text()?, &self.text()?)?);
        }
        Ok(views)
    }

    /// Reads the feed's changes after the version `asked`. If one is missing, the digests are `None`, because no cached entry can
    /// be trusted.
    pub(super) fn changes(mut self, asked: u64) -> Result<Changes, StoreError> {
        let version = self.number()?;
        if self.text()? == "behind" {
            return Ok(Changes { version, digests: None });
        }
        let mut expected = asked;
        let mut digests = Vec::new();
        for entry in self.rest {
            expected += 1;
            let mut words = entry.split(' ');
            if words.next().and_then(|number| number.parse().ok()) != Some(expected) {
                return Ok(Changes { version, digests: None });
            }
            for word in words {
                let digest = KeyDigest::from_hex(word);
                digests.push(digest.ok_or_else(|| {
                    StoreError::Corrupt(
                        "an entry of the change feed in redis contains a word that is not a digest".to_owned(),
                    )
                })?);
            }
        }
        let whole = expected == version;
        Ok(Changes {
            version,
            digests: whole.then_some(digests),
        })
    }
}

pub(super) fn view(record_text: &str, used: &str, digest: &str) -> Result<KeyView, StoreError> {
    let last_used = match used {
        "" => None,
        at => Some(
            at.parse()
                .map_err(|_| StoreError::Corrupt("the last use of a key in redis is not a number".to_owned()))?,
        ),
    };
    let digest = KeyDigest::from_hex(digest)
        .ok_or_else(|| StoreError::Corrupt("a key in redis has no valid digest".to_owned()))?;
    Ok(KeyView {
        digest,
        record: record(record_text)?,
        last_used,
    })
}

/// Parses a record. The error contains a position, never the content.
pub(super) fn record(text: &str) -> Result<KeyRecord, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Corrupt(format!(
            "cannot parse a key's record (line {}, column {})",
            error.line(),
            error.column()
        ))
    })
}

pub(super) fn record_text(record: &KeyRecord) -> Result<String, StoreError> {
    serde_json::to_string(record).map_err(|_| StoreError::Corrupt(format!("cannot encode the record of {}", record.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(texts: &[&str]) -> Result<ScriptReply, StoreError> {
        ScriptReply::read(texts.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn refusals_have_their_names() {
        assert_eq!(reply(&["not_found", "g"]).err(), Some(StoreError::NotFound));
        assert_eq!(reply(&["duplicate", "g"]).err(), Some(StoreError::Duplicate));
        for status in ["lost", "uninitialised"] {
            assert!(matches!(reply(&[status, ""]).err(), Some(StoreError::Unavailable(_))));
        }
        assert_eq!(
            reply(&["corrupt", "g", "why"]).err(),
            Some(StoreError::Corrupt("why".into()))
        );
        assert!(matches!(reply(&[]).err(), Some(StoreError::Corrupt(_))));
        assert!(reply(&["conflict", "g"]).unwrap().is_conflict());
    }

    #[test]
    fn a_feed_with_a_gap_is_not_believed() {
        let digest = KeyDigest::from_bytes([7; 32]);
        let [five, six, eight] = [5, 6, 8].map(|version| format!("{version} {}", digest.to_hex()));
        let changes = |version: &str, entries: &[&String]| {
            let mut texts = vec!["ok", "g", version, "changes"];
            texts.extend(entries.iter().map(|entry| entry.as_str()));
            reply(&texts).unwrap().changes(4).unwrap().digests
        };
        assert_eq!(changes("6", &[&five, &six]), Some(vec![digest, digest]));
        assert_eq!(changes("4", &[]), Some(vec![]));
        assert_eq!(changes("6", &[&five, &eight]), None);
        assert_eq!(changes("7", &[&five, &six]), None);
        assert_eq!(changes("6", &[&six]), None);
    }
}

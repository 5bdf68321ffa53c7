//! A store with many keys and rows, made of the few that a gateway has: its backup, with copies of what is in it, put back.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::weir::Weir;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A backup that is being written.
struct Backup {
    to: BufWriter<File>,
    hash: Sha256,
    items: u64,
}

impl Backup {
    fn line(&mut self, line: &str) {
        self.hash.update(line);
        self.hash.update("\n");
        writeln!(self.to, "{line}").unwrap();
    }

    fn item(&mut self, item: &Json) {
        self.items += 1;
        self.line(&item.to_string());
    }

    fn end(mut self) {
        let digest = self.hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let end = serde_json::json!({ "end": { "items": self.items, "sha256": digest } });
        writeln!(self.to, "{end}").unwrap();
        self.to.flush().unwrap();
    }
}

impl Weir {
    /// Ends the gateway, puts copies of its first key and of its first row into its store, and starts it again. `name` gives the
    /// key of a number its name. The rows are those keys' in turn, or else the first key's; `days_ago` says when one ended.
    pub(crate) fn multiply(
        &mut self,
        (keys, name): (usize, impl Fn(usize) -> String),
        (rows, days_ago): (usize, impl Fn(usize) -> usize),
    ) {
        self.process().signal("TERM");
        assert!(self.process().wait_ended().success());
        let path = |name: &str| self.folder().join(name).to_str().unwrap().to_owned();
        let (few, many) = (path("few.jsonl"), path("many.jsonl"));
        let made = self.store_command(&["backup", "--out", &few]);
        assert!(made.status.success(), "{made:?}");
        let text = std::fs::read_to_string(&few).unwrap();
        let mut backup = Backup {
            to: BufWriter::new(File::create(&many).unwrap()),
            hash: Sha256::new(),
            items: 0,
        };
        let lines: Vec<&str> = text.lines().collect();
        let (_, items) = lines.split_last().unwrap();
        let (header, items) = items.split_first().unwrap();
        backup.line(header);
        let items: Vec<Json> = items.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let copy_of = |kind: &str| items.iter().find(|item| item.get(kind).is_some()).unwrap().clone();
        let (mut key, mut row) = (copy_of("key"), copy_of("row"));
        for item in items.iter().filter(|item| item.get("row").is_none()) {
            backup.item(item);
        }
        for number in 0..keys {
            let fields = &mut key["key"];
            fields["record"]["id"] = format!("key_{number:016}").into();
            fields["record"]["name"] = name(number).into();
            fields["digest"] = digest_like(&fields["digest"], number);
            backup.item(&key);
        }
        let ended = row["row"]["row"]["time_ms"].as_i64().unwrap();
        for number in 0..rows {
            let days_ago = i64::try_from(days_ago(number)).unwrap();
            let fields = &mut row["row"]["row"];
            if keys > 0 {
                fields["key_id"] = format!("key_{:016}", number % keys).into();
            }
            fields["request_id"] = format!("copy-{number}").into();
            fields["time_ms"] = (ended - days_ago * DAY_MS).into();
            backup.item(&row);
        }
        for item in items.iter().filter(|item| item.get("row").is_some()) {
            backup.item(item);
        }
        backup.end();
        std::fs::rename(self.folder().join("store"), self.folder().join("few")).unwrap();
        std::fs::rename(self.folder().join("journal"), self.folder().join("few-journal")).unwrap();
        let restored = self.store_command(&["restore", "--from", &many]);
        assert!(restored.status.success(), "{restored:?}");
        std::fs::remove_file(&many).unwrap();
        self.kill_and_restart();
    }
}

/// A digest in the form of another one, of no key that there is.
fn digest_like(other: &Json, number: usize) -> Json {
    match other {
        Json::String(text) => {
            let digest = format!("{number:0width$x}", width = text.len());
            Json::String(digest)
        }
        other => panic!("a digest is text: {other}"),
    }
}

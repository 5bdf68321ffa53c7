//! The Lua scripts of the store and the ledger. Each is one atomic operation.

use std::vec::IntoIter;

use ::redis::{Cmd, Pipeline, ToRedisArgs};

use crate::{
    domain::keys::{KeyRecord, secret::KeyDigest},
    store::{Changes, KeyView, StoreError},
};

/// A script that consists of the given parts.
macro_rules! alone {
    ($($file:literal)*) => {
        RedisScript::new(concat!($(include_str!($file)),*))
    };
}

/// A script that consists of `prelude.lua`, with which most scripts begin, and the given parts.
macro_rules! script {
    ($($file:literal)*) => {
        alone!("prelude.lua" $($file)*)
    };
}

script_table! { Scripts,
    find: script!("former.lua" "find.lua"),
    create: script!("former.lua" "create.lua"),
    view: script!("view.lua"),
    list: script!("list.lua"),
    replace: script!("former.lua" "replace.lua"),
    delete: script!("former.lua" "delete.lua"),
    heal: script!("former.lua" "heal.lua"),
    gone: script!("gone.lua"),
    init: alone!("init.lua"),
    empty: alone!("empty.lua"),
    load: alone!("former.lua" "load.lua"),
    gone_ids: script!("gone_ids.lua"),
    touch: script!("touch.lua"),
    changes: script!("changes.lua"),
    recall: script!("recall.lua"),
    remember: script!("remember.lua"),
    document: script!("document.lua"),
    exchange: script!("exchange.lua"),
    generation: script!("generation.lua"),
    time: alone!("time.lua"),
    log_homes: script!("log_homes.lua"),
    stability_tell: script!("stability/tell.lua"),
    stability_load: alone!("stability/filling.lua" "stability/tell.lua"),
    stability_read: script!("stability/read.lua"),
    web_session_begin: script!("web_sessions/head.lua" "web_sessions/begin.lua"),
    web_session_visit: script!("web_sessions/head.lua" "web_sessions/visit.lua"),
    web_session_end: script!("web_sessions/head.lua" "web_sessions/end.lua"),
    web_session_list: script!("web_sessions/head.lua" "web_sessions/list.lua"),
}

/// A script of the ledger that consists of the given parts.
macro_rules! alone {
    ($($file:literal)*) => {
        RedisScript::new(concat!($(include_str!(concat!("ledger/", $file))),*))
    };
}

/// A script of the ledger that consists of `prelude.lua`, with which most of the ledger's scripts begin, and the given parts.
macro_rules! script {
    ($($file:literal)*) => {
        alone!("prelude.lua" $($file)*)
    };
}

script_table! { LedgerScripts,
    admit: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "recalls.lua" "admit.lua"),
    top_up: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "recalls.lua" "top_up.lua"),
    lease: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "hash.lua" "leases.lua" "lease.lua"),
    apply: script!("period.lua" "holds.lua" "mirror.lua" "buckets.lua" "operations.lua" "hash.lua" "leases.lua" "daily_sums.lua" "notices.lua" "settling.lua" "together.lua" "apply.lua"),
    set_terms: script!("hash.lua" "set_terms.lua"),
    watermark: script!("watermark.lua"),
    renew: script!("holds.lua" "renew.lua"),
    release: script!("holds.lua" "release.lua"),
    account: script!("period.lua" "holds.lua" "account.lua"),
    key_spend: script!("period.lua" "holds.lua" "key_spend.lua"),
    spent: script!("spent.lua"),
    operation: script!("operations.lua" "operation.lua"),
    take_notices: script!("notices.lua" "take_notices.lua"),
    told: script!("told.lua"),
    rows: script!("rows.lua"),
    sums: script!("sums.lua"),
    summed: script!("summed.lua"),
    put_sums: script!("put_sums.lua"),
    enter: alone!("enter.lua"),
    names: alone!("names.lua"),
    kept: script!("period.lua" "operations.lua" "kept.lua"),
    put_back: script!("operations.lua" "put_back.lua"),
    put_rows: script!("put_rows.lua"),
    restored: script!("restored.lua"),
    log_days: script!("log_days.lua"),
    remove: script!("remove.lua"),
}

/// A script. weir loads its text into Redis on every new connection. Calls refer to the script by its digest.
pub(super) struct RedisScript {
    text: &'static str,
    digest: String,
}

impl RedisScript {
    pub(super) fn new(text: &'static str) -> Self {
        let digest = ::redis::Script::new(text).get_hash().to_owned();
        Self { text, digest }
    }

    /// Returns the command that loads the script into a server.
    pub(super) fn load(&self) -> Cmd {
        let mut command = ::redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// Returns a call of the script that has no keys and no arguments yet.
    pub(super) fn call(&self) -> ScriptCall<'_> {
        ScriptCall {
            script: self,
            keys: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

/// Returns the commands that load scripts into a server, as one pipeline for a single round trip.
pub(super) fn load<'a>(scripts: impl Iterator<Item = &'a RedisScript>) -> Pipeline {
    let mut pipe = ::redis::pipe();
    for script in scripts {
        pipe.add_command(script.load()).ignore();
    }
    pipe
}

/// A call of a script, with its keys and arguments in the order in which they were added.
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a RedisScript,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall<'_> {
    pub(super) fn key<K: ToRedisArgs>(&mut self, key: K) -> &mut Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    pub(super) fn arg<A: ToRedisArgs>(&mut self, argument: A) -> &mut Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    pub(super) fn first_key(&self) -> Option<&[u8]> {
        self.keys.first().map(Vec::as_slice)
    }

    /// Returns the command that runs the script on a server into which it has been loaded.
    pub(super) fn command(&self) -> Cmd {
        let (keys, arguments) = (&self.keys, &self.arguments);
        let bytes: usize = keys.iter().chain(arguments).map(Vec::len).sum();
        // The command's name, the digest and the number of keys are three arguments with some fifty bytes in total.
        let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), 64 + bytes);
        command.arg("EVALSHA").arg(&self.script.digest);
        command.arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}

/// Declares a struct of scripts from a list of `name: script,`.
macro_rules! script_table {
    ($table:ident, $($name:ident: $script:expr,)*) => {
        pub(super) struct $table {
            $(pub(super) $name: RedisScript,)*
        }

        impl $table {
            pub(super) fn new() -> Self {
                Self { $($name: $script,)* }
            }

            /// Iterates over all scripts of the table.
            pub(super) fn all(&self) -> impl Iterator<Item = &RedisScript> {
                [$(&self.$name),*].into_iter()
            }
        }
    };
}
pub(super) use script_table;

pub(super) struct ScriptReply {
    pub(super) generation: String,
    conflict: bool,
    rest: IntoIter<String>,
}

impl ScriptReply {
    /// Reads a reply. If its status says why the script refused the call, returns this reason as an error.
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

    /// Whether the script has refused the call, because another call has changed the data on which the call depends.
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

    /// Reads keys. Each key consists of three texts: its record, its last use and its digest.
    pub(super) fn views(mut self) -> Result<Vec<KeyView>, StoreError> {
        let mut views = Vec::new();
        while let Some(text) = self.rest.next() {
            views.push(view(&text, &self.text()?, &self.text()?)?);
        }
        Ok(views)
    }

    /// Reads the feed's changes after the version `asked`. If a change is missing, the digests are `None`, because then no cached
    /// entry can be trusted.
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
                        "an entry of the change feed in redis contains a value that is not a digest".to_owned(),
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
    use ::redis::Arg;

    fn words(command: &Cmd) -> Vec<&str> {
        let word = |argument| match argument {
            Arg::Simple(bytes) => std::str::from_utf8(bytes).unwrap(),
            _ => panic!("no word"),
        };
        command.args_iter().map(word).collect()
    }

    #[test]
    fn a_call_names_its_script_by_the_digest_and_its_keys_stand_before_its_arguments() {
        let script = RedisScript::new("return 1");
        let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let mut call = script.call();
        call.arg("x").key("{a}:1").key("{a}:2").arg("").arg("z").arg(7);
        let command = call.command();
        let expected = ["EVALSHA", digest, "2", "{a}:1", "{a}:2", "x", "", "z", "7"];
        assert_eq!(words(&command), expected);
        assert_eq!(call.first_key(), Some(b"{a}:1".as_slice()));
        let bare = script.call();
        assert_eq!(
            (words(&bare.command()), bare.first_key()),
            (vec!["EVALSHA", digest, "0"], None)
        );
        assert_eq!(words(&script.load()), ["SCRIPT", "LOAD", "return 1"]);
    }

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

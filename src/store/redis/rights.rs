//! Checks the rights of the ACL user at a server without using them. After MULTI, a server reports for each command whether the
//! user may run it. The server runs none of the commands, because the connection is closed before EXEC. The server checks rights
//! before it checks its memory, its role and the owner of a key's hash slot. So the check of rights works with any server in any
//! state.
//!
//! If a script may not run one of its commands, the script stops there, and Redis does not undo its earlier commands. So a server
//! at which one of the rights for scripts is missing is not used at all.

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

use super::settings::{RedisMode, RedisSettings};

/// The commands that the scripts use, each with the number of arguments that the check sends. A server verifies that number
/// before it checks rights. All arguments are keys.
const SCRIPTED: [(&str, usize); 31] = [
    ("del", 1),
    ("exists", 1),
    ("expire", 2),
    ("expireat", 2),
    ("get", 1),
    ("hdel", 2),
    ("hexists", 2),
    ("hget", 2),
    ("hgetall", 1),
    ("hkeys", 1),
    ("hlen", 1),
    ("hmget", 2),
    ("hset", 3),
    ("incr", 1),
    ("llen", 1),
    ("lrange", 3),
    ("ltrim", 3),
    ("pexpire", 2),
    ("rpush", 2),
    ("sadd", 2),
    ("set", 2),
    ("smembers", 1),
    ("srem", 2),
    ("time", 0),
    ("unlink", 1),
    ("zadd", 3),
    ("zcard", 1),
    ("zrange", 3),
    ("zrangebylex", 3),
    ("zrank", 2),
    ("zrem", 2),
];
/// The command that begins each check of rights. The server does not run the commands that follow it.
const CHECK_COMMAND: &str = "multi";
/// The suffix of the names of keys that are used in a check. No stored key has this suffix.
const PROBE: &str = "rights";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RightUse {
    /// Nothing works without this right.
    Vital,
    /// weir works without this right; the text names the restriction.
    Useful(&'static str),
}

/// A right, and the command with which it is checked.
struct AclRight {
    name: &'static str,
    words: Vec<String>,
    usage: RightUse,
}

/// The rights that weir needs at a server that holds data.
pub(super) struct RequiredRights {
    user: String,
    /// The prefix of all of weir's Redis keys.
    prefix: String,
    rights: Vec<AclRight>,
}

/// The rights that are missing, as text of the form "user ... may not ...: grant ...".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingUserRights {
    /// The reason why the server is not used, with the rights to grant; `None` if it can be used.
    pub(super) refusal: Option<String>,
    /// What does not work because useful rights are missing, with the rights to grant; `None` if no useful right is missing.
    pub(super) complaint: Option<String>,
}

impl RequiredRights {
    pub(super) fn new(settings: &RedisSettings) -> Self {
        let prefix = format!("{{{}:", settings.namespace);
        let key = |family: &str| format!("{prefix}{family}}}:{PROBE}");
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let vital = |name, words| AclRight {
            name,
            words,
            usage: RightUse::Vital,
        };
        let mut rights: Vec<AclRight> = SCRIPTED
            .iter()
            .map(|(name, count)| {
                let arguments = std::iter::repeat_n(key("keys"), *count);
                vital(*name, std::iter::once((*name).to_owned()).chain(arguments).collect())
            })
            .collect();
        rights.extend([
            vital("evalsha", words(&["evalsha", PROBE, "0"])),
            vital("script|load", words(&["script", "load", "return 1"])),
            vital("ping", words(&["ping"])),
        ]);
        for family in ["accounts", "a:probe"] {
            rights.extend([
                vital("hget", vec!["hget".to_owned(), key(family), PROBE.to_owned()]),
                vital("del", vec!["del".to_owned(), key(family)]),
            ]);
        }
        if settings.database != 0 {
            rights.push(vital("select", words(&["select", &settings.database.to_string()])));
        }
        if matches!(settings.mode, RedisMode::Cluster) {
            rights.push(vital("cluster|slots", words(&["cluster", "slots"])));
            rights.push(vital("asking", words(&["asking"])));
        }
        let useful = |name, words, missed| AclRight {
            name,
            words,
            usage: RightUse::Useful(missed),
        };
        if matches!(settings.mode, RedisMode::Cluster) {
            let missed = "keys left behind by an interrupted move of slots are not found";
            let (count, get) = (
                ["cluster", "countkeysinslot", "0"],
                ["cluster", "getkeysinslot", "0", "1"],
            );
            rights.push(useful("cluster|countkeysinslot", words(&count), missed));
            rights.push(useful("cluster|getkeysinslot", words(&get), missed));
        }
        rights.extend([
            useful(
                "info",
                words(&["info"]),
                "weir cannot check the server's role, settings and memory",
            ),
            useful(
                "client|tracking",
                words(&["client", "tracking", "on", "bcast", "prefix", &prefix]),
                "changes of keys are found only by polling",
            ),
        ]);
        Self {
            user: settings.username.clone().unwrap_or_else(|| "default".to_owned()),
            prefix,
            rights,
        }
    }

    /// Returns all rights as arguments of `ACL SETUSER`, for example `+get`.
    #[cfg(test)]
    pub(super) fn least(&self) -> std::collections::BTreeSet<String> {
        let named = self.rights.iter().map(|right| right.name);
        named.chain([CHECK_COMMAND]).map(|name| format!("+{name}")).collect()
    }

    /// Checks all rights. The connection cannot be used afterwards.
    pub(super) async fn check(&self, mut connection: MultiplexedConnection) -> RedisResult<MissingUserRights> {
        // MULTI is sent alone: if it is refused, the commands after it would run.
        let begun: RedisResult<Value> = ::redis::cmd(CHECK_COMMAND).query_async(&mut connection).await;
        match begun {
            Ok(_) => {}
            Err(error) if error.is_unrecoverable_error() => return Err(error),
            Err(_) => return Ok(self.unknown_rights()),
        }
        let mut pipe = Pipeline::new();
        for right in &self.rights {
            let mut words = right.words.iter();
            pipe.cmd(words.next().map_or("", String::as_str)).arg(words.as_slice());
        }
        let answers: Vec<RedisResult<Value>> = pipe.ignore_errors().query_async(&mut connection).await?;
        Ok(self.missing(&answers))
    }

    fn unknown_rights(&self) -> MissingUserRights {
        let missed = "weir cannot check which other rights are missing";
        MissingUserRights {
            refusal: None,
            complaint: Some(self.describe(&[(CHECK_COMMAND, RightUse::Useful(missed))], false)),
        }
    }

    /// Evaluates the answers, one for each right.
    fn missing(&self, answers: &[RedisResult<Value>]) -> MissingUserRights {
        let (mut vital, mut useful, mut keys) = (Vec::new(), Vec::new(), false);
        for (right, answer) in self.rights.iter().zip(answers) {
            match (answer.as_ref().err().and_then(DeniedRight::of), right.usage) {
                (None, _) => {}
                (Some(DeniedRight::Key), _) => keys = true,
                (Some(DeniedRight::Command), RightUse::Vital) => vital.push((right.name, right.usage)),
                (Some(DeniedRight::Command), RightUse::Useful(_)) => useful.push((right.name, right.usage)),
            }
        }
        // Some rights are checked with several keys, so the same name can occur repeatedly.
        let mut seen = std::collections::BTreeSet::new();
        vital.retain(|(name, _)| seen.insert(*name));
        MissingUserRights {
            refusal: (keys || !vital.is_empty()).then(|| self.describe(&vital, keys)),
            complaint: (!useful.is_empty()).then(|| self.describe(&useful, false)),
        }
    }

    /// Returns the message about missing rights, with the arguments of `ACL SETUSER` that grant them.
    fn describe(&self, missing: &[(&str, RightUse)], keys: bool) -> String {
        let name = |(name, of): &(&str, RightUse)| match of {
            RightUse::Vital => format!("{name:?}"),
            RightUse::Useful(missed) => format!("{name:?} ({missed})"),
        };
        let names: Vec<String> = missing.iter().map(name).collect();
        let mut granted: Vec<String> = missing.iter().map(|(name, _)| format!("+{name}")).collect();
        let mut denied = Vec::new();
        if !names.is_empty() {
            denied.push(format!("may not run {}", names.join(", ")));
        }
        if keys {
            denied.push(format!("may not use all keys that begin with {:?}", self.prefix));
            granted.push(format!("~{}*", self.prefix));
        }
        format!(
            "user {:?} {}: grant {}",
            self.user,
            denied.join(" and "),
            granted.join(" ")
        )
    }

    /// Returns the error text of a call that was refused because a right is missing.
    pub(super) fn refusal_text(&self) -> String {
        format!(
            "redis user {:?} lacks a right that this call needs: the log and /readyz name it",
            self.user
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeniedRight {
    Command,
    Key,
}

impl DeniedRight {
    fn of(error: &RedisError) -> Option<Self> {
        (error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)).then(|| {
            // The messages of Redis 6 to 8 are: "no permissions to run the 'get' command", "to access one of the keys", "to
            // access the 'k' key", "to access a key".
            let is_key = error.detail().is_some_and(|detail| detail.contains("to access"));
            if is_key { Self::Key } else { Self::Command }
        })
    }
}

/// Whether a call, or a command of its script, was refused because a right is missing.
pub(super) fn is_refused(error: &RedisError) -> bool {
    let in_script = |detail: &str| {
        // The first text is that of Redis 6 and 7.0, the second that of later versions.
        detail.contains("The user executing the script can't ") || detail.contains("ACL failure in script")
    };
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) || error.detail().is_some_and(in_script)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::redis::parse_redis_value;

    use super::*;

    fn rights(mode: RedisMode) -> RequiredRights {
        RequiredRights::new(&RedisSettings {
            mode,
            nodes: vec!["h:1".to_owned()],
            username: Some("weir".to_owned()),
            password: None,
            database: 0,
            tls: false,
            ca_file: None,
            namespace: "shop".to_owned(),
            budget: Duration::from_millis(100),
            queue: Duration::from_secs(5),
        })
    }

    fn error(line: &str) -> RedisError {
        let line = format!("-{line}\r\n");
        parse_redis_value(line.as_bytes())
            .and_then(Value::extract_error)
            .unwrap_err()
    }

    /// Returns the missing rights if the server denies these.
    fn missing(denied: &[(&str, &str)]) -> MissingUserRights {
        let rights = rights(RedisMode::Cluster);
        let answer = |right: &AclRight| {
            let found = denied.iter().find(|(name, _)| *name == right.name);
            found.map_or(Ok(Value::Okay), |(_, line)| Err(error(line)))
        };
        let answers: Vec<_> = rights.rights.iter().map(answer).collect();
        rights.missing(&answers)
    }

    #[test]
    fn each_missing_right_is_named_with_the_word_that_grants_it() {
        assert_eq!(missing(&[]), MissingUserRights::default());
        let none = "NOPERM this user has no permissions to run the 'x' command";
        let lacking = missing(&[("hget", none), ("asking", none)]);
        let said = "user \"weir\" may not run \"hget\", \"asking\": grant +hget +asking";
        assert_eq!((lacking.refusal.as_deref(), lacking.complaint), (Some(said), None));
        let lacking = missing(&[("info", none)]);
        let said = "user \"weir\" may not run \"info\" (weir cannot check the server's role, settings and memory): grant +info";
        assert_eq!((lacking.refusal, lacking.complaint.as_deref()), (None, Some(said)));
    }

    #[test]
    fn keys_that_may_not_be_used_are_named_in_the_words_of_every_redis() {
        for line in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
            "NOPERM User weir has no permissions to access the '{shop:keys}:rights' key",
        ] {
            let lacking = missing(&[("get", line)]);
            let said = "user \"weir\" may not use all keys that begin with \"{shop:\": grant ~{shop:*";
            assert_eq!(lacking.refusal.as_deref(), Some(said), "{line}");
        }
    }

    #[test]
    fn what_a_server_cannot_do_now_is_no_missing_right() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
            "MOVED 3999 10.0.0.1:7000",
            "LOADING Redis is loading the dataset in memory",
        ] {
            assert_eq!(missing(&[("hset", line)]), MissingUserRights::default(), "{line}");
        }
    }

    #[test]
    fn a_refusal_inside_a_script_is_one_of_rights() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand script: 4d, on @user_script:1.",
            "ERR Error running script (call to f_4d): @user_script:1: The user executing the script can't run this command",
            "ERR ACL failure in script: User weir has no permissions to run the 'info' command script: 4d",
        ] {
            assert!(is_refused(&error(line)), "{line}");
        }
        assert!(!is_refused(&error("ERR unknown command")));
    }
}

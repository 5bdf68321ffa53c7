//! The meaning of errors for the call that met them.

use ::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::redis::rights;

/// What an error means for the call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not done: the slot is with this server for good.
    Moved(String),
    /// Not done: the slot is on its way to this server, which has to be asked with ASKING.
    Ask(String),
    /// Not done: the slot is on its way, and a key of it is not, or not any more, with this server; ask again in a moment.
    Wait,
    /// Not done: the server is no master any more.
    NotMaster,
    /// The connection is gone, and with it the knowledge whether it was done.
    Broken,
    /// Refused for want of a right, perhaps in the middle of a script.
    Denied,
    /// Refused. A script's first write is refused before anything is written.
    Refused,
}

impl Verdict {
    pub(super) fn of(error: &RedisError) -> Self {
        let redirect = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => redirect().map_or(Self::Refused, Self::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => redirect().map_or(Self::Refused, Self::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::Wait,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Self::NotMaster,
            // A script came upon a key that it had made the name of. It does so before it writes.
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("attempted to access a non local key")) =>
            {
                Self::Wait
            }
            // Before Redis 7 a script's error has the real one in its text.
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains(": -READONLY ") || detail.contains(": -MASTERDOWN ")) =>
            {
                Self::NotMaster
            }
            _ if rights::is_refused(error) => Self::Denied,
            _ if error.is_unrecoverable_error() => Self::Broken,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::{Value, parse_redis_value};

    use super::*;

    fn verdict(code: &str, detail: &str) -> Verdict {
        let line = format!("-{code} {detail}\r\n");
        let error = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        Verdict::of(&error.unwrap_err())
    }

    #[test]
    fn errors_have_one_meaning_each() {
        let moved = || "10.0.0.1:7000".to_owned();
        for (code, detail, meaning) in [
            ("MOVED", "3999 10.0.0.1:7000", Verdict::Moved(moved())),
            ("ASK", "3999 10.0.0.1:7000", Verdict::Ask(moved())),
            (
                "TRYAGAIN",
                "Multiple keys request during rehashing of slot",
                Verdict::Wait,
            ),
            (
                "ERR",
                "Script attempted to access a non local key in a cluster node script: f_1, on @user_script:1.",
                Verdict::Wait,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: Lua script attempted to access a \
                 non local key in a cluster node",
                Verdict::Wait,
            ),
            (
                "READONLY",
                "You can't write against a read only replica.",
                Verdict::NotMaster,
            ),
            ("MASTERDOWN", "Link with MASTER is down", Verdict::NotMaster),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
                Verdict::NotMaster,
            ),
            ("CLUSTERDOWN", "The cluster is down", Verdict::Refused),
            ("NOREPLICAS", "Not enough good replicas to write.", Verdict::Refused),
            ("MISCONF", "Redis is configured to save RDB snapshots", Verdict::Refused),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                Verdict::Refused,
            ),
            ("BUSY", "Redis is busy running a script.", Verdict::Refused),
            ("LOADING", "Redis is loading the dataset in memory", Verdict::Refused),
            ("NOAUTH", "Authentication required.", Verdict::Refused),
            ("NOPERM", "this user has no permissions", Verdict::Denied),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 4d, on @user_script:1.",
                Verdict::Denied,
            ),
            ("ERR", "unknown command", Verdict::Refused),
        ] {
            assert_eq!(verdict(code, detail), meaning, "{code} {detail}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_it_open_what_happened() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(Verdict::of(&broken), Verdict::Broken);
    }
}

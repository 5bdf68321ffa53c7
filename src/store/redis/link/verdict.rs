//! The meaning of errors for the call that met them.

use ::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::redis::rights;

/// What an error means for the call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RedisErrorMeaning {
    /// Not run: this server owns the slot for good.
    Moved(String),
    /// Not run: the slot is being moved to this server, which has to be asked with ASKING.
    Ask(String),
    /// Not run: the slot is being moved, and one of its keys is not, or no longer, at this server; try again in a moment.
    Wait,
    /// Not run: the server is no longer a master.
    NotMaster,
    /// The connection is lost, so it is unknown whether the call ran.
    Broken,
    /// Refused because a right is missing, perhaps in the middle of a script.
    Denied,
    /// Refused. A script's first write is refused before anything is written.
    Refused,
}

impl RedisErrorMeaning {
    pub(super) fn of(error: &RedisError) -> Self {
        let redirect = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => redirect().map_or(Self::Refused, Self::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => redirect().map_or(Self::Refused, Self::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::Wait,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Self::NotMaster,
            // A script met a key whose name it had derived. It does so before it writes.
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("attempted to access a non local key")) =>
            {
                Self::Wait
            }
            // Before Redis 7 a script's error contains the real one in its text.
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

    fn verdict(code: &str, detail: &str) -> RedisErrorMeaning {
        let line = format!("-{code} {detail}\r\n");
        let error = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        RedisErrorMeaning::of(&error.unwrap_err())
    }

    #[test]
    fn errors_have_one_meaning_each() {
        let moved = || "10.0.0.1:7000".to_owned();
        for (code, detail, meaning) in [
            ("MOVED", "3999 10.0.0.1:7000", RedisErrorMeaning::Moved(moved())),
            ("ASK", "3999 10.0.0.1:7000", RedisErrorMeaning::Ask(moved())),
            (
                "TRYAGAIN",
                "Multiple keys request during rehashing of slot",
                RedisErrorMeaning::Wait,
            ),
            (
                "ERR",
                "Script attempted to access a non local key in a cluster node script: f_1, on @user_script:1.",
                RedisErrorMeaning::Wait,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: Lua script attempted to access a \
                 non local key in a cluster node",
                RedisErrorMeaning::Wait,
            ),
            (
                "READONLY",
                "You can't write against a read only replica.",
                RedisErrorMeaning::NotMaster,
            ),
            ("MASTERDOWN", "Link with MASTER is down", RedisErrorMeaning::NotMaster),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
                RedisErrorMeaning::NotMaster,
            ),
            ("CLUSTERDOWN", "The cluster is down", RedisErrorMeaning::Refused),
            (
                "NOREPLICAS",
                "Not enough good replicas to write.",
                RedisErrorMeaning::Refused,
            ),
            (
                "MISCONF",
                "Redis is configured to save RDB snapshots",
                RedisErrorMeaning::Refused,
            ),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                RedisErrorMeaning::Refused,
            ),
            ("BUSY", "Redis is busy running a script.", RedisErrorMeaning::Refused),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                RedisErrorMeaning::Refused,
            ),
            ("NOAUTH", "Authentication required.", RedisErrorMeaning::Refused),
            ("NOPERM", "this user has no permissions", RedisErrorMeaning::Denied),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 4d, on @user_script:1.",
                RedisErrorMeaning::Denied,
            ),
            ("ERR", "unknown command", RedisErrorMeaning::Refused),
        ] {
            assert_eq!(verdict(code, detail), meaning, "{code} {detail}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_it_open_what_happened() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(RedisErrorMeaning::of(&broken), RedisErrorMeaning::Broken);
    }
}

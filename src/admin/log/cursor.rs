//! A position in the log as text, for clients to continue from.

use crate::{api::names::AccountId, domain::ledger::log_place::LogPosition, sinks::reading::LogCursor};

/// The maximum length of a request id in a cursor.
const ID_BYTES_MAX: usize = 128;

/// Writes a cursor as `DAY.TIME.REQUEST.ACCOUNT`; at the beginning of a day the last two are empty.
pub(super) fn write_cursor(cursor: &LogCursor) -> String {
    let LogPosition {
        account,
        time_ms,
        request_id,
    } = &cursor.place;
    format!("{}.{time_ms}.{request_id}.{account}", cursor.day)
}

/// Reads a cursor that [`text`] has written; `None` for any other text.
pub(super) fn read_cursor(text: &str) -> Option<LogCursor> {
    let mut parts = text.splitn(4, '.');
    let (day, time, id, account) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_begin = id.is_empty() && account.is_empty();
    if !is_begin && (id.len() > ID_BYTES_MAX || account.parse::<AccountId>().is_err()) {
        return None;
    }
    let place = LogPosition {
        account: account.into(),
        time_ms: time.parse().ok()?,
        request_id: id.into(),
    };
    Some(LogCursor {
        day: day.parse().ok()?,
        place: if is_begin { LogPosition::default() } else { place },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        let place = |account: &str, time_ms, request_id: &str| LogPosition {
            account: account.into(),
            time_ms,
            request_id: request_id.into(),
        };
        for place in [place("a.b-c", 1_793_491_200_123, "req_Ab1"), LogPosition::default()] {
            let cursor = LogCursor { day: 20_758, place };
            assert_eq!(read_cursor(&write_cursor(&cursor)), Some(cursor));
        }
        for wrong in ["", "7", "7.0", "7.x..", "7.1.req.", "7.1.req.no account", "x.1.req.a"] {
            assert_eq!(read_cursor(wrong), None, "{wrong}");
        }
    }
}

//! A place in the log as clients have it, to come back with.

use crate::{api::names::AccountId, domain::ledger::log_place::LogPlace, sinks::reading::LogCursor};

/// Of an id that stands in a cursor.
const ID_BYTES_MAX: usize = 128;

/// `DAY.TIME.REQUEST.ACCOUNT`; at the beginning of a day the last two are empty.
pub(super) fn text(cursor: &LogCursor) -> String {
    let LogPlace {
        account,
        time_ms,
        request_id,
    } = &cursor.place;
    format!("{}.{time_ms}.{request_id}.{account}", cursor.day)
}

/// What [`text`] has written; `None`: that it is not.
pub(super) fn read(text: &str) -> Option<LogCursor> {
    let mut parts = text.splitn(4, '.');
    let (day, time, id, account) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_begin = id.is_empty() && account.is_empty();
    if !is_begin && (id.len() > ID_BYTES_MAX || account.parse::<AccountId>().is_err()) {
        return None;
    }
    let place = LogPlace {
        account: account.into(),
        time_ms: time.parse().ok()?,
        request_id: id.into(),
    };
    Some(LogCursor {
        day: day.parse().ok()?,
        place: if is_begin { LogPlace::default() } else { place },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        let place = |account: &str, time_ms, request_id: &str| LogPlace {
            account: account.into(),
            time_ms,
            request_id: request_id.into(),
        };
        for place in [place("a.b-c", 1_793_491_200_123, "req_Ab1"), LogPlace::default()] {
            let cursor = LogCursor { day: 20_758, place };
            assert_eq!(read(&text(&cursor)), Some(cursor));
        }
        for wrong in ["", "7", "7.0", "7.x..", "7.1.req.", "7.1.req.no account", "x.1.req.a"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

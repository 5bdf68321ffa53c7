//! Pages of the log with the newest rows first.

use std::collections::BTreeMap;

use crate::{
    admin::{Admin, ask::AdminHandler, author::Author},
    api::{
        error::AdminError,
        log::{ListNewestRows, NewestPage},
        names::AccountId,
    },
    edges::clock,
    sinks::asks::{ListsCursor, NewestCursor, NewestRows, NewestRowsQuery, SliceCursor},
};

/// The prefix of a cursor into a backend that is read by time.
const HOME: &str = "h*";

impl AdminHandler for ListNewestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<NewestPage, AdminError> {
        let Self(asked) = self;
        let newest = admin.log.newest(NewestRowsQuery {
            filter: asked.row_filter(admin).await?,
            from: asked.parse_cursor(read_newest_cursor)?,
            limit: asked.rows_max(),
            until: clock::instant() + asked.search_time(),
        });
        let NewestRows { rows, next, looked_at } = newest.await?;
        Ok(NewestPage {
            rows: asked.to_log_rows(admin, rows),
            next: next.as_ref().map(write_newest_cursor),
            looked_at,
            unknown_model: asked.unknown_model(admin),
        })
    }
}

/// Writes a cursor: in the store's lists `DAY` and, per account, `*ACCOUNT*LEFT`; otherwise `h*LENGTH*TIME*ACCOUNT*REQUEST`. It
/// needs no encoding in a URL.
fn write_newest_cursor(cursor: &NewestCursor) -> String {
    match cursor {
        NewestCursor::InLists(ListsCursor { day, left }) => {
            let mut text = day.to_string();
            for (account, left) in left {
                text.extend(["*", account, "*", &left.to_string()]);
            }
            text
        }
        NewestCursor::InSlices(SliceCursor {
            time_ms,
            account,
            request_id,
            length_ms,
        }) => format!("{HOME}{length_ms}*{time_ms}*{account}*{request_id}"),
    }
}

/// Reads a cursor that [`text`] has written; `None` for any other text.
fn read_newest_cursor(text: &str) -> Option<NewestCursor> {
    if let Some(of_home) = text.strip_prefix(HOME) {
        let mut parts = of_home.splitn(4, '*');
        let (length, time) = (parts.next()?, parts.next()?);
        return Some(NewestCursor::InSlices(SliceCursor {
            length_ms: length.parse().ok()?,
            time_ms: time.parse().ok()?,
            account: parts.next()?.into(),
            request_id: parts.next()?.into(),
        }));
    }
    let mut parts = text.split('*');
    let day = parts.next()?.parse().ok()?;
    let mut left = BTreeMap::new();
    while let Some(account) = parts.next() {
        let account: AccountId = account.parse().ok()?;
        left.insert(account.to_string(), parts.next()?.parse().ok()?);
    }
    Some(NewestCursor::InLists(ListsCursor { day, left }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        for accounts in [&[][..], &["a.b-c_1"], &["acme", "b"]] {
            let left = (40..)
                .zip(accounts)
                .map(|(left, account)| ((*account).to_owned(), left));
            let cursor = NewestCursor::InLists(ListsCursor {
                day: 20_758,
                left: left.collect(),
            });
            assert_eq!(read_newest_cursor(&write_newest_cursor(&cursor)), Some(cursor));
        }
        for (account, request_id) in [("", ""), ("a.b-c", "req_Ab1")] {
            let cursor = NewestCursor::InSlices(SliceCursor {
                time_ms: 1_793_491_200_123,
                account: account.into(),
                request_id: request_id.into(),
                length_ms: 3_600_000,
            });
            assert_eq!(read_newest_cursor(&write_newest_cursor(&cursor)), Some(cursor));
        }
        for wrong in [
            "",
            "x",
            "7*",
            "7*acme",
            "7*acme*x",
            "7*no account*1",
            "7.1.req.a",
            "h*1*2",
            "h*x*2*a*b",
        ] {
            assert_eq!(read_newest_cursor(wrong), None, "{wrong}");
        }
    }
}

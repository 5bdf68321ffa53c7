//! Reads the table a page at a time: what is asked for goes down to a partition and its index, and a page is all that is in
//! memory.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{
    domain::ledger::NodeId,
    journal::NumberedRow,
    sinks::postgres::{
        columns,
        connection::{Connection, Dialer, Use, within},
        error::PostgresError,
        settings::PostgresSettings,
    },
};

/// The most rows of a page.
const PAGE_ROWS_MAX: usize = 1000;
/// The rows of an account and day behind a place, and those behind so many.
pub(super) const BEHIND_A_PLACE: &str = "SELECT * FROM weir.log
    WHERE time >= $1 AND time < $2 AND account = $3 AND (time, node, number) > ($4, $5, $6)
    ORDER BY time, node, number LIMIT $7";
pub(super) const BEHIND_SO_MANY: &str = "SELECT * FROM weir.log
    WHERE time >= $1 AND time < $2 AND account = $3
    ORDER BY time, node, number LIMIT $4 OFFSET $5";
/// The most pages that are read at the same time. Others wait for their turn, no longer than for a page.
const READERS_MAX: usize = 2;
/// How many places in the log are remembered, so that the next page need not count the rows of those before it.
const PLACES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
const DAY_MS: i64 = 24 * 3_600_000;

/// Reads the log of a database.
pub(super) struct Reading {
    pub(super) turns: Semaphore,
    /// Connections that nothing is under way on; at most [`READERS_MAX`].
    pub(super) idle: Mutex<Vec<Connection>>,
    places: Mutex<LruCache<Begin, Place>>,
}

/// Where a page begins: an account, a day, and how many rows come before.
type Begin = (String, i64, usize);

/// A row's place in the order of pages, within an account: its time, node and number.
#[derive(Clone)]
struct Place {
    time_ms: i64,
    node: String,
    number: i64,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(READERS_MAX),
            idle: Mutex::default(),
            places: Mutex::new(LruCache::new(PLACES_MAX)),
        }
    }
}

impl Reading {
    /// Up to `limit` rows, at most [`PAGE_ROWS_MAX`], of an account that ended on a day (days since the Unix epoch, UTC), by
    /// time, node and number, the first `skip` left out.
    pub(super) async fn rows(
        &self,
        dialer: &Dialer,
        settings: &PostgresSettings,
        begin: Begin,
        limit: usize,
    ) -> Result<Vec<(NodeId, NumberedRow)>, PostgresError> {
        within(
            settings.read,
            self.page(dialer, settings, begin, limit.min(PAGE_ROWS_MAX)),
        )
        .await
    }

    async fn page(
        &self,
        dialer: &Dialer,
        settings: &PostgresSettings,
        begin: Begin,
        limit: usize,
    ) -> Result<Vec<(NodeId, NumberedRow)>, PostgresError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let connection = self.connection(dialer, settings).await?;
        let found = self.ask(&connection, &begin, limit).await?;
        self.idle.lock().push(connection);
        let rows = found.iter().map(columns::read).collect::<Result<Vec<_>, _>>()?;
        if let Some((node, last)) = rows.last() {
            let place = Place {
                time_ms: last.row.time_ms,
                node: node.to_string(),
                number: i64::try_from(last.number).unwrap_or(i64::MAX),
            };
            let (account, day, skip) = begin;
            self.places.lock().put((account, day, skip + rows.len()), place);
        }
        Ok(rows)
    }

    /// One that nothing is under way on.
    pub(super) async fn connection(
        &self,
        dialer: &Dialer,
        settings: &PostgresSettings,
    ) -> Result<Connection, PostgresError> {
        let kept = self.idle.lock().pop().filter(|kept| !kept.client.is_closed());
        match kept {
            Some(kept) => Ok(kept),
            None => dialer.connect(Use::Reading, settings.read).await,
        }
    }

    async fn ask(
        &self,
        connection: &Connection,
        begin: &Begin,
        limit: usize,
    ) -> Result<Vec<tokio_postgres::Row>, PostgresError> {
        let (account, day, skip) = begin;
        let (since, until) = (day.saturating_mul(DAY_MS), day.saturating_add(1).saturating_mul(DAY_MS));
        let (since, until) = (columns::moment(since), columns::moment(until));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let known = self.places.lock().get(begin).cloned();
        let rows = match known {
            Some(Place { time_ms, node, number }) => {
                let time = columns::moment(time_ms);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                    [&since, &until, account, &time, &node, &number, &limit];
                connection.client.query(BEHIND_A_PLACE, &values).await?
            }
            None => {
                let skip = i64::try_from(*skip).unwrap_or(i64::MAX);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [&since, &until, account, &limit, &skip];
                connection.client.query(BEHIND_SO_MANY, &values).await?
            }
        };
        Ok(rows)
    }
}

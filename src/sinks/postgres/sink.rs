//! The log backend in Postgres: writes each batch of rows in one transaction with its lane's watermark, and reads pages of rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::{ToSpan, civil::Date, tz::TimeZone};
use tokio::sync::{Mutex, watch};
use tokio_postgres::{Client, Transaction, binary_copy::BinaryCopyInWriter};

use crate::{
    domain::{keys::KeyId, ledger::NodeId},
    journal::NumberedRow,
    sinks::{
        Batch, BatchLimits, LatestKeyRows, Linger, LogBackend, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage,
        Sink, SinkError,
        postgres::{
            self, LogQuery, PostgresError, PostgresReader, PostgresSettings, columns,
            connection::{PostgresConnection, PostgresDialer, with_timeout},
        },
    },
};

/// The name of the sink and of the log backend, in settings and messages.
pub(crate) const NAME: &str = "postgres";
/// The limits of a batch of rows. A batch is one transaction.
const BATCHING: BatchLimits = BatchLimits {
    rows_max: 10_000,
    linger: Linger::For(Duration::from_secs(1)),
};

/// The consumption log in a Postgres database.
pub(crate) struct PostgresLog {
    dialer: PostgresDialer,
    settings: PostgresSettings,
    /// A session that is not in use. A call takes it out and puts it back after a success. A session whose call was dropped or
    /// failed is not used again.
    idle: Mutex<Option<WriteSession>>,
    reading: PostgresReader,
}

/// A connection for writing to a database, and the partitions that are known to exist in this database. All migrations were
/// applied to the database.
struct WriteSession {
    connection: PostgresConnection,
    partitions: KnownPartitions,
}

impl PostgresLog {
    /// Creates the log backend without connecting.
    ///
    /// # Errors
    /// The settings cannot be used: [`PostgresError::Settings`].
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, PostgresError> {
        Ok(Self {
            dialer: PostgresDialer::new(&settings)?,
            settings,
            idle: Mutex::new(None),
            reading: PostgresReader::default(),
        })
    }

    async fn session(&self) -> Result<WriteSession, PostgresError> {
        if let Some(session) = self.idle.lock().await.take()
            && !session.connection.client.is_closed()
        {
            return Ok(session);
        }
        let connection = self.dialer.connect(self.settings.write).await?;
        with_timeout(self.settings.write, postgres::check(&connection.client)).await?;
        Ok(WriteSession {
            connection,
            partitions: KnownPartitions::default(),
        })
    }

    async fn put_back(&self, session: WriteSession) {
        *self.idle.lock().await = Some(session);
    }

    async fn read_watermark(&self, node: &NodeId) -> Result<u64, PostgresError> {
        let session = self.session().await?;
        let (client, node) = (&session.connection.client, node.as_str());
        let found = with_timeout(self.settings.write, async {
            let statement = "SELECT upto FROM weir.sink WHERE node = $1";
            Ok(client.query_opt(statement, &[&node]).await?)
        });
        let found = found.await?;
        let upto = match found {
            Some(row) => row.try_get::<_, i64>(0)?.unsigned_abs(),
            None => 0,
        };
        self.put_back(session).await;
        Ok(upto)
    }

    /// Reads the watermark of each lane.
    async fn read_watermarks(&self) -> Result<BTreeMap<NodeId, u64>, PostgresError> {
        let session = self.session().await?;
        let client = &session.connection.client;
        let found = with_timeout(self.settings.write, async {
            Ok(client.query("SELECT node, upto FROM weir.sink", &[]).await?)
        });
        let found = found.await?;
        let mut reaches = BTreeMap::new();
        for row in &found {
            if let Some(node) = NodeId::parse(row.try_get(0)?) {
                reaches.insert(node, row.try_get::<_, i64>(1)?.unsigned_abs());
            }
        }
        self.put_back(session).await;
        Ok(reaches)
    }

    /// Inserts a batch of rows if it begins at its lane's watermark.
    async fn insert(&self, batch: &Batch) -> Result<InsertOutcome, PostgresError> {
        let mut session = self.session().await?;
        let taken = with_timeout(self.settings.write, session.insert(batch)).await?;
        self.put_back(session).await;
        Ok(taken)
    }
}

/// The result of inserting a batch of rows.
enum InsertOutcome {
    /// The table contains the batch, because of this or an earlier call.
    Present,
    /// The batch does not begin at the lane's watermark, which is this number. Nothing was inserted.
    OutOfOrder(u64),
}

impl WriteSession {
    async fn insert(&mut self, batch: &Batch) -> Result<InsertOutcome, PostgresError> {
        let client = &mut self.connection.client;
        self.partitions.create_for(client, &batch.rows).await?;
        let transaction = client.transaction().await?;
        // The watermark's row is locked from here on. Another feeder of the lane waits and then finds this batch in the table.
        let upto = lock_watermark(&transaction, &batch.node).await?;
        if upto >= batch.upto {
            transaction.rollback().await?;
            return Ok(InsertOutcome::Present);
        }
        if upto != batch.after {
            transaction.rollback().await?;
            return Ok(InsertOutcome::OutOfOrder(upto));
        }
        copy_rows(&transaction, batch).await?;
        let reach = i64::try_from(batch.upto).unwrap_or(i64::MAX);
        transaction
            .execute(
                "UPDATE weir.sink SET upto = $2, changed_at = now() WHERE node = $1",
                &[&batch.node.as_str(), &reach],
            )
            .await?;
        transaction.commit().await?;
        Ok(InsertOutcome::Present)
    }
}

/// Reads a lane's watermark and locks it until the end of the transaction.
async fn lock_watermark(transaction: &Transaction<'_>, node: &NodeId) -> Result<u64, PostgresError> {
    let node = node.as_str();
    transaction
        .execute(
            "INSERT INTO weir.sink (node, upto) VALUES ($1, 0) ON CONFLICT DO NOTHING",
            &[&node],
        )
        .await?;
    let row = transaction
        .query_one("SELECT upto FROM weir.sink WHERE node = $1 FOR UPDATE", &[&node])
        .await?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}

async fn copy_rows(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), PostgresError> {
    let statement = format!("COPY weir.log ({}) FROM STDIN BINARY", columns::names());
    let sink = transaction.copy_in(&statement).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &columns::types()));
    for row in &batch.rows {
        columns::write(writer.as_mut(), &batch.node, row).await?;
    }
    writer.finish().await?;
    Ok(())
}

#[async_trait]
impl Sink for PostgresLog {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batching(&self) -> BatchLimits {
        BATCHING
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        self.read_watermark(node).await.map_err(unavailable)
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        match self.insert(batch).await.map_err(unavailable)? {
            InsertOutcome::Present => Ok(()),
            InsertOutcome::OutOfOrder(watermark) => Err(SinkError::OutOfOrder { watermark }),
        }
    }
}

#[async_trait]
impl LogBackend for PostgresLog {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError> {
        let (dialer, settings) = (&self.dialer, &self.settings);
        let question = LogQuery::page(ask);
        let rows = self.reading.query(dialer, settings, &question);
        let rows = rows.await.map_err(unreadable)?;
        Ok(RowPage::from_rows(rows, ask.limit.min(PAGE_ROWS_MAX)))
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError> {
        let (dialer, settings) = (&self.dialer, &self.settings);
        let question = LogQuery::latest((account, key), &days, limit);
        let rows = self.reading.query(dialer, settings, &question);
        let numbered = rows.await.map_err(unreadable)?;
        let rows = numbered.into_iter().map(|(_, numbered)| numbered.row).collect();
        Ok(LatestKeyRows {
            rows,
            is_complete: true,
        })
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        self.read_watermarks().await.map(Some).map_err(unreadable)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn unreadable(error: PostgresError) -> LogBackendError {
    LogBackendError::Unavailable(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn unavailable(error: PostgresError) -> SinkError {
    SinkError::Unavailable(error.to_string())
}

/// The number of partitions that are created ahead, for the days after the most recent row's day.
const AHEAD_DAYS: i64 = 3;
/// The maximum number of days in [`KnownPartitions`]. When it is reached, all days are removed. The next rows of a removed day
/// cause another request to create the day's partition.
const KNOWN_MAX: usize = 1024;

/// The days whose partitions are known to exist.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions(BTreeSet<Date>);

impl KnownPartitions {
    /// Creates the partitions for the days of `rows`, unless they are known to exist.
    pub(super) async fn create_for(&mut self, client: &Client, rows: &[Arc<NumberedRow>]) -> Result<(), PostgresError> {
        for day in self.lacking(rows) {
            client.execute("SELECT weir.make_partition($1)", &[&day]).await?;
            if self.0.len() >= KNOWN_MAX {
                self.0.clear();
            }
            self.0.insert(day);
        }
        Ok(())
    }

    fn lacking(&self, rows: &[Arc<NumberedRow>]) -> BTreeSet<Date> {
        let mut days: BTreeSet<Date> = rows.iter().map(|row| day(row.row.time_ms)).collect();
        // On the first rows of a day, the partitions of the next days are created too.
        if let Some(last) = days.last().copied().filter(|last| !self.0.contains(last)) {
            days.extend((1..=AHEAD_DAYS).filter_map(|ahead| last.checked_add(ahead.days()).ok()));
        }
        days.retain(|day| !self.0.contains(day));
        days
    }
}

fn day(unix_ms: i64) -> Date {
    columns::moment(unix_ms).to_zoned(TimeZone::UTC).date()
}

/// The interval at which the oldest partition is dropped if it is too old. The server drops at most one per hour
/// (`weir.drop_oldest`), however many nodes request it. So weir removes at most 24 days of old rows per day, and a clock that is
/// wrong for an hour causes the loss of at most one day of rows.
const EVERY: Duration = Duration::from_secs(3600);
/// The pause after the database could not be reached or was not set up.
const AGAIN: Duration = Duration::from_secs(60);

/// The task that drops old partitions. Each node runs it; the server makes sure that only one drop per hour takes effect.
pub(crate) struct PostgresRetention {
    dialer: PostgresDialer,
    settings: PostgresSettings,
}

impl PostgresRetention {
    /// Creates the task without connecting.
    ///
    /// # Errors
    /// The settings cannot be used: [`PostgresError::Settings`].
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, PostgresError> {
        Ok(Self {
            dialer: PostgresDialer::new(&settings)?,
            settings,
        })
    }

    /// Drops old partitions, one per hour, until `stopped` turns true.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let pause = match self.drop_oldest().await {
                Ok(dropped) => {
                    if let Some(day) = dropped {
                        tracing::info!(%day, "removed the rows of this day from postgres, because they were older than the retention period");
                    }
                    EVERY
                }
                // Only logged for debugging, because the feeder reports it too.
                Err(error @ (PostgresError::Unreachable(_) | PostgresError::Timeout(_) | PostgresError::NotReady)) => {
                    tracing::debug!(%error, "cannot remove old rows from postgres; weir tries again in a minute");
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot remove old rows from postgres; weir tries again in an hour");
                    EVERY
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Drops the oldest partition if it is too old. Returns its day, or `None` if nothing was dropped.
    pub(super) async fn drop_oldest(&self) -> Result<Option<Date>, PostgresError> {
        let connection = self.dialer.connect(self.settings.write).await?;
        let keep = i32::try_from(self.settings.keep_days).unwrap_or(i32::MAX);
        let row = with_timeout(self.settings.write, async {
            let statement = "SELECT weir.drop_oldest($1)";
            Ok(connection.client.query_one(statement, &[&keep]).await?)
        });
        let row = row.await?;
        Ok(row.try_get(0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::consumption::Row,
        sinks::contract::{BEGIN_MS, row},
    };

    fn at(times: &[i64]) -> Vec<Arc<NumberedRow>> {
        let numbered = |(number, time_ms): (u64, &i64)| NumberedRow {
            number,
            row: Row {
                time_ms: *time_ms,
                ..row(number, BEGIN_MS)
            },
        };
        (1..).zip(times).map(numbered).map(Arc::new).collect()
    }

    #[test]
    fn days_of_rows_have_partitions_and_a_new_day_has_the_next_ones_too() {
        let day_ms = 24 * 3_600_000;
        let mut known = KnownPartitions::default();
        let lacking = |known: &KnownPartitions, times: &[i64]| -> Vec<String> {
            known.lacking(&at(times)).iter().map(ToString::to_string).collect()
        };
        let first = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"];
        assert_eq!(lacking(&known, &[BEGIN_MS, BEGIN_MS + day_ms - 1]), first);
        known.0 = known.lacking(&at(&[BEGIN_MS]));
        assert!(lacking(&known, &[BEGIN_MS, BEGIN_MS + 3 * day_ms]).is_empty());
        assert_eq!(lacking(&known, &[BEGIN_MS - 1]), ["2026-10-31"]);
        // Times that are off by ages still have a day that can be named.
        assert_eq!(lacking(&known, &[i64::MIN])[0], "1970-01-01");
        assert_eq!(lacking(&known, &[i64::MAX]), ["9999-12-30", "9999-12-31"]);
    }
}

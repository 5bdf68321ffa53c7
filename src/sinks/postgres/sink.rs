//! The log in a database: writes batches of rows, each in one transaction with its lane's watermark, and reads pages.

use std::{collections::BTreeMap, ops::RangeInclusive, pin::pin};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_postgres::{Transaction, binary_copy::BinaryCopyInWriter};

use crate::{
    domain::{keys::key::KeyId, ledger::NodeId},
    sinks::{
        asks::{LatestKeyRows, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage},
        batching::{BatchLimits, Linger},
        home::LogBackend,
        postgres::{
            columns,
            connection::{PostgresConnection, PostgresDialer, with_timeout},
            error::PostgresError,
            migrations,
            pages::LogQuery,
            partitions::KnownPartitions,
            reading::PostgresReader,
            settings::PostgresSettings,
        },
        sink::{Batch, Sink, SinkError},
    },
};

/// The name of the sink.
pub(crate) const NAME: &str = "postgres";
/// The limits of a batch, which is one transaction.
const BATCHING: BatchLimits = BatchLimits {
    rows_max: 10_000,
    linger: Linger::For(std::time::Duration::from_secs(1)),
};

/// The consumption log in a database.
pub(crate) struct PostgresLog {
    dialer: PostgresDialer,
    settings: PostgresSettings,
    /// An idle session. Its user takes it out and puts it back after success: a session that was given up in the middle is never
    /// used again.
    idle: Mutex<Option<WriteSession>>,
    reading: PostgresReader,
}

/// A connection to a database with all migrations, and the partitions that are known to exist.
struct WriteSession {
    connection: PostgresConnection,
    partitions: KnownPartitions,
}

impl PostgresLog {
    /// Creates the log backend without connecting.
    ///
    /// # Errors
    /// [`PostgresError::Settings`].
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
        with_timeout(self.settings.write, migrations::check(&connection.client)).await?;
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

    /// The watermark of each lane.
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

    /// Inserts a batch, if it begins at the watermark.
    async fn insert(&self, batch: &Batch) -> Result<InsertOutcome, PostgresError> {
        let mut session = self.session().await?;
        let taken = with_timeout(self.settings.write, session.insert(batch)).await?;
        self.put_back(session).await;
        Ok(taken)
    }
}

/// The result of inserting a batch.
enum InsertOutcome {
    /// The table has the batch.
    Present,
    /// The batch does not begin at this watermark.
    OutOfOrder(u64),
}

impl WriteSession {
    async fn insert(&mut self, batch: &Batch) -> Result<InsertOutcome, PostgresError> {
        let client = &mut self.connection.client;
        self.partitions.create_for(client, &batch.rows).await?;
        let transaction = client.transaction().await?;
        // The watermark is locked from here on: another feeder of the lane waits, and then sees this batch.
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

/// Locks and reads a lane's watermark.
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

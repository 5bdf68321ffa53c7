//! The log in a database: batches of rows go in, each in one transaction with how far its node is, and pages come out.

use std::{collections::BTreeMap, ops::RangeInclusive, pin::pin};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_postgres::{Transaction, binary_copy::BinaryCopyInWriter};

use crate::{
    domain::{keys::key::KeyId, ledger::NodeId},
    sinks::{
        asks::{HomeError, Latest, LogPage, PAGE_ROWS_MAX, PageAsk},
        batching::{Batching, Linger},
        home::LogHome,
        postgres::{
            columns,
            connection::{Connection, Dialer, within},
            error::PostgresError,
            migrations,
            pages::Question,
            partitions::Partitions,
            reading::Reading,
            settings::PostgresSettings,
        },
        sink::{Batch, Sink, SinkError},
    },
};

/// The name of the sink.
pub(crate) const NAME: &str = "postgres";
/// Rows of one transaction, and how long they are gathered.
const BATCHING: Batching = Batching {
    rows_max: 10_000,
    linger: Linger::For(std::time::Duration::from_secs(1)),
};

/// The consumption log in a database.
pub(crate) struct PostgresLog {
    dialer: Dialer,
    settings: PostgresSettings,
    /// A connection that nothing is under way on. Whoever uses it takes it out, and puts it back when all has gone well: one
    /// that was given up in the middle is never used again.
    idle: Mutex<Option<Session>>,
    reading: Reading,
}

/// A connection to a database that has what is needed, and the partitions that are known to be there.
struct Session {
    connection: Connection,
    partitions: Partitions,
}

impl PostgresLog {
    /// Connects nowhere yet.
    ///
    /// # Errors
    /// [`PostgresError::Settings`].
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, PostgresError> {
        Ok(Self {
            dialer: Dialer::new(&settings)?,
            settings,
            idle: Mutex::new(None),
            reading: Reading::default(),
        })
    }

    async fn session(&self) -> Result<Session, PostgresError> {
        if let Some(session) = self.idle.lock().await.take()
            && !session.connection.client.is_closed()
        {
            return Ok(session);
        }
        let connection = self.dialer.connect(self.settings.write).await?;
        within(self.settings.write, migrations::check(&connection.client)).await?;
        Ok(Session {
            connection,
            partitions: Partitions::default(),
        })
    }

    async fn keep(&self, session: Session) {
        *self.idle.lock().await = Some(session);
    }

    async fn reach(&self, node: &NodeId) -> Result<u64, PostgresError> {
        let session = self.session().await?;
        let (client, node) = (&session.connection.client, node.as_str());
        let found = within(self.settings.write, async {
            let statement = "SELECT upto FROM weir.sink WHERE node = $1";
            Ok(client.query_opt(statement, &[&node]).await?)
        });
        let found = found.await?;
        let upto = match found {
            Some(row) => row.try_get::<_, i64>(0)?.unsigned_abs(),
            None => 0,
        };
        self.keep(session).await;
        Ok(upto)
    }

    /// How far each node is.
    async fn reaches(&self) -> Result<BTreeMap<NodeId, u64>, PostgresError> {
        let session = self.session().await?;
        let client = &session.connection.client;
        let found = within(self.settings.write, async {
            Ok(client.query("SELECT node, upto FROM weir.sink", &[]).await?)
        });
        let found = found.await?;
        let mut reaches = BTreeMap::new();
        for row in &found {
            if let Some(node) = NodeId::parse(row.try_get(0)?) {
                reaches.insert(node, row.try_get::<_, i64>(1)?.unsigned_abs());
            }
        }
        self.keep(session).await;
        Ok(reaches)
    }

    /// Puts the batch into the table; says how far the table is where it does not begin there.
    async fn take(&self, batch: &Batch) -> Result<Taken, PostgresError> {
        let mut session = self.session().await?;
        let taken = within(self.settings.write, session.take(batch)).await?;
        self.keep(session).await;
        Ok(taken)
    }
}

/// What became of a batch.
enum Taken {
    /// It is there.
    There,
    /// It does not begin where the table is.
    Not(u64),
}

impl Session {
    async fn take(&mut self, batch: &Batch) -> Result<Taken, PostgresError> {
        let client = &mut self.connection.client;
        self.partitions.make_for(client, &batch.rows).await?;
        let transaction = client.transaction().await?;
        // Its row is locked from here on: whoever feeds the same lane waits, and then sees this batch.
        let upto = standing(&transaction, &batch.node).await?;
        if upto >= batch.upto {
            transaction.rollback().await?;
            return Ok(Taken::There);
        }
        if upto != batch.after {
            transaction.rollback().await?;
            return Ok(Taken::Not(upto));
        }
        copy(&transaction, batch).await?;
        let reach = i64::try_from(batch.upto).unwrap_or(i64::MAX);
        transaction
            .execute(
                "UPDATE weir.sink SET upto = $2, changed_at = now() WHERE node = $1",
                &[&batch.node.as_str(), &reach],
            )
            .await?;
        transaction.commit().await?;
        Ok(Taken::There)
    }
}

/// How far a node is, with its row locked.
async fn standing(transaction: &Transaction<'_>, node: &NodeId) -> Result<u64, PostgresError> {
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

async fn copy(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), PostgresError> {
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

    fn batching(&self) -> Batching {
        BATCHING
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        self.reach(node).await.map_err(unavailable)
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        match self.take(batch).await.map_err(unavailable)? {
            Taken::There => Ok(()),
            Taken::Not(watermark) => Err(SinkError::OutOfOrder { watermark }),
        }
    }
}

#[async_trait]
impl LogHome for PostgresLog {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn page(&self, ask: &PageAsk) -> Result<LogPage, HomeError> {
        let (dialer, settings) = (&self.dialer, &self.settings);
        let question = Question::page(ask);
        let rows = self.reading.put(dialer, settings, &question);
        let rows = rows.await.map_err(unreadable)?;
        Ok(LogPage::of(rows, ask.limit.min(PAGE_ROWS_MAX)))
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Latest, HomeError> {
        let (dialer, settings) = (&self.dialer, &self.settings);
        let question = Question::latest((account, key), &days, limit);
        let rows = self.reading.put(dialer, settings, &question);
        let numbered = rows.await.map_err(unreadable)?;
        let rows = numbered.into_iter().map(|(_, numbered)| numbered.row).collect();
        Ok(Latest { rows, is_whole: true })
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, HomeError> {
        self.reaches().await.map(Some).map_err(unreadable)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn unreadable(error: PostgresError) -> HomeError {
    HomeError::Unavailable(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn unavailable(error: PostgresError) -> SinkError {
    SinkError::Unavailable(error.to_string())
}

//! The log in a real Postgres: exactly once, with few rights, whatever happens to the server.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_postgres::NoTls;

use super::*;
use crate::sinks::postgres::sink::PostgresRetention;
use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::{
        Batch, LogBackend, LogPageQuery, Sink, SinkError,
        contract::{self, BEGIN_MS, Place, batch, node, row},
    },
};

mod earlier;
mod plans;
mod reach;
mod server;

use crate::sinks::postgres::tests::server::Server;

const DAY_MS: i64 = 24 * 3_600_000;
const WRITER: &str = "weir_writer";

/// A server on which `weir log init` has run, with a role that has a writer's rights.
async fn ready() -> Option<Server> {
    let server = Server::start().await?;
    server
        .sql("CREATE ROLE weir_writer LOGIN; CREATE ROLE \"a reader\" LOGIN")
        .await;
    let grants = Grants {
        writers: vec![WRITER.to_owned()],
        readers: vec!["a reader".to_owned()],
    };
    assert_eq!(set_up(&server.own(), &grants).await.unwrap(), [1, 2, 3, 4, 5]);
    Some(server)
}

#[async_trait]
impl Place for Server {
    async fn open(&self) -> Arc<dyn Sink> {
        Arc::new(PostgresLog::new(self.settings(WRITER)).unwrap())
    }

    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        let (client, connection) =
            tokio_postgres::connect(&self.url("a reader").replace("a reader", "'a reader'"), NoTls)
                .await
                .unwrap();
        let driver = tokio::spawn(connection);
        let statement = "SELECT * FROM weir.log WHERE node = $1 ORDER BY number";
        let found = client.query(statement, &[&node.as_str()]).await.unwrap();
        driver.abort();
        found
            .iter()
            .map(|row| Arc::new(columns::read(row).unwrap().1))
            .collect()
    }
}

#[tokio::test]
async fn pages_are_those_of_the_rows_whatever_is_asked_for() {
    let Some(server) = ready().await else { return };
    contract::pages::obeys(&PostgresLog::new(server.settings(WRITER)).unwrap()).await;
}

fn batch_of(node: &NodeId, after: u64, times: &[i64]) -> Batch {
    let numbers = (after + 1)..;
    let numbered = |(number, time_ms): (u64, &i64)| NumberedRow {
        number,
        row: Row {
            time_ms: *time_ms,
            admitted_ms: *time_ms,
            ..row(number, BEGIN_MS)
        },
    };
    let rows: Vec<_> = numbers.zip(times).map(numbered).map(Arc::new).collect();
    Batch {
        node: node.clone(),
        after,
        upto: after + rows.len() as u64 + 1,
        rows,
    }
}

#[tokio::test]
async fn it_obeys_the_contract_with_a_writers_rights() {
    let Some(server) = ready().await else { return };
    contract::obeys(&server).await;
    // The same rows by SQL: what an operator would compute.
    let sent = server.rows(&node(1)).await;
    let cost: i64 = sent.iter().map(|row| row.row.cost_nano_usd.nanos()).sum();
    let sum = format!(
        "SELECT sum(cost_nano_usd)::bigint FROM weir.log WHERE node = '{}'",
        node(1)
    );
    assert_eq!(server.sql(&sum).await, [cost.to_string()]);
}

#[tokio::test]
async fn setting_up_again_or_at_the_same_time_changes_nothing() {
    let Some(server) = Server::start().await else { return };
    let log = PostgresLog::new(server.own()).unwrap();
    let refused = log.watermark(&node(1)).await.unwrap_err();
    assert!(refused.to_string().contains("weir log init"), "{refused}");
    let (settings, none) = (server.own(), Grants::default());
    let all = futures_util::future::join_all((0..4).map(|_| set_up(&settings, &none))).await;
    let mut applied: Vec<i32> = all.into_iter().flat_map(Result::unwrap).collect();
    applied.sort_unstable();
    assert_eq!(applied, [1, 2, 3, 4, 5]);
    log.append(&batch(&node(1), 0, 3)).await.unwrap();
    assert_eq!(set_up(&settings, &none).await.unwrap(), [0_i32; 0]);
    // What an early weir has made lacks the second migration: rows wait for it, and those that are there stay.
    server
        .sql("DROP TABLE weir.retention; DELETE FROM weir.migration WHERE number >= 2")
        .await;
    let log = PostgresLog::new(server.own()).unwrap();
    let refused = log.watermark(&node(1)).await.unwrap_err();
    assert!(refused.to_string().contains("weir log init"), "{refused}");
    assert_eq!(set_up(&settings, &none).await.unwrap(), [2, 3, 4, 5]);
    assert_eq!(server.rows_of(&node(1)).await, "3");
    // A later weir has added something.
    server.sql("INSERT INTO weir.migration (number) VALUES (99)").await;
    server.sql("ALTER TABLE weir.log ADD COLUMN later text").await;
    let log = PostgresLog::new(server.own()).unwrap();
    let next = log.watermark(&node(1)).await.unwrap();
    log.append(&batch(&node(1), next, 3)).await.unwrap();
    assert_eq!(server.rows_of(&node(1)).await, "6");
}

#[tokio::test]
async fn a_writer_can_neither_change_nor_remove_rows_and_a_reader_can_only_read() {
    let Some(server) = ready().await else { return };
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    log.append(&batch(&node(1), 0, 3)).await.unwrap();
    let tried = async |user: &str, statement: &str| {
        let (client, connection) = tokio_postgres::connect(&server.url(user), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let refused = client.batch_execute(statement).await.err();
        driver.abort();
        refused.and_then(|error| Some(error.code()?.code().to_owned()))
    };
    for statement in [
        "DELETE FROM weir.log",
        "UPDATE weir.log SET cost_nano_usd = 0",
        "TRUNCATE weir.log",
        "DROP TABLE weir.log",
        "DELETE FROM weir.sink",
        "CREATE TABLE weir.mine ()",
        "DELETE FROM weir.log_20261101",
    ] {
        let code = tried(WRITER, statement).await;
        assert_eq!(code.as_deref(), Some("42501"), "{statement}");
    }
    for statement in [
        "INSERT INTO weir.sink VALUES ('a', 1)",
        "SELECT weir.make_partition('2027-01-01')",
        "SELECT weir.drop_oldest(1)",
    ] {
        assert_eq!(
            tried("'a reader'", statement).await.as_deref(),
            Some("42501"),
            "{statement}"
        );
    }
    assert_eq!(tried("'a reader'", "SELECT * FROM weir.log").await, None);
    // A role without any rights is told, and nothing is lost: the batch is taken once it may be.
    server.sql("CREATE ROLE nobody_yet LOGIN").await;
    let log = PostgresLog::new(server.settings("nobody_yet")).unwrap();
    let refused = log.append(&batch(&node(2), 0, 3)).await.unwrap_err();
    assert!(refused.to_string().contains("42501"), "{refused}");
    let grants = Grants {
        writers: vec!["nobody_yet".to_owned()],
        ..Grants::default()
    };
    set_up(&server.own(), &grants).await.unwrap();
    log.append(&batch(&node(2), 0, 3)).await.unwrap();
    assert_eq!(server.rows_of(&node(2)).await, "3");
}

impl Server {
    async fn rows_of(&self, node: &NodeId) -> String {
        let count = format!("SELECT count(*) FROM weir.log WHERE node = '{node}'");
        self.sql(&count).await.remove(0)
    }
}

#[tokio::test]
async fn days_that_are_too_long_ago_go_one_at_a_time_and_late_rows_have_a_place() {
    let Some(server) = ready().await else { return };
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    let now = crate::edges::clock::unix_millis();
    let times = [now - 400 * DAY_MS, now - 300 * DAY_MS, now - 179 * DAY_MS, now];
    let first = batch_of(&node(1), 0, &times);
    log.append(&first).await.unwrap();
    let retention = PostgresRetention::new(server.settings(WRITER)).unwrap();
    let days = |times: &[i64]| -> Vec<String> {
        let date = |ms: &i64| {
            jiff::Timestamp::from_millisecond(*ms)
                .unwrap()
                .strftime("%Y-%m-%d")
                .to_string()
        };
        times.iter().map(date).collect()
    };
    assert_eq!(
        retention.drop_oldest().await.unwrap().map(|day| day.to_string()),
        Some(days(&times[..1]).remove(0))
    );
    assert_eq!(server.rows_of(&node(1)).await, "3");
    // Neither this node nor another one, nor one that starts again and again, has more than one dropped within an hour.
    let another = PostgresRetention::new(server.settings(WRITER)).unwrap();
    for retention in [&retention, &another] {
        assert_eq!(retention.drop_oldest().await.unwrap(), None);
    }
    // What a clock that was ahead has noted puts nothing off for longer.
    server
        .sql("UPDATE weir.retention SET dropped_at = now() + interval '1 year'")
        .await;
    assert_eq!(retention.drop_oldest().await.unwrap(), None);
    let later = "UPDATE weir.retention SET dropped_at = dropped_at - interval '1 hour'";
    for dropped in [true, false] {
        server.sql(later).await;
        assert_eq!(another.drop_oldest().await.unwrap().is_some(), dropped);
    }
    assert_eq!(server.rows_of(&node(1)).await, "2");
    // Its partition was known and is gone.
    let late = batch_of(&node(1), first.upto, &[now - 400 * DAY_MS]);
    let mut taken = log.append(&late).await;
    if taken.is_err() {
        taken = log.append(&late).await;
    }
    assert_eq!(taken, Ok(()));
    assert_eq!(server.rows_of(&node(1)).await, "3");
    server.sql("SELECT 1").await;
    let zero = PostgresSettings {
        keep_days: 0,
        ..server.settings(WRITER)
    };
    assert!(PostgresRetention::new(zero).unwrap().drop_oldest().await.is_err());
}

#[tokio::test]
async fn texts_that_postgres_does_not_take_are_no_reason_to_stop() {
    let Some(server) = ready().await else { return };
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    let mut odd = batch_of(&node(1), 0, &[i64::MIN, i64::MAX, BEGIN_MS]);
    for row in &mut odd.rows {
        let row = Arc::make_mut(row);
        row.row.model_asked = "a\0b\u{1F600}\\N\t\"'".into();
        row.row.latency_ms = u64::MAX;
        row.row.status = u16::MAX;
        row.row.parts = vec![crate::domain::money::price::CostShare {
            run: crate::domain::wire::usage::RunKind::Fallback,
            model: "m\0".to_owned(),
            usage: Default::default(),
            priced_as: None,
            price_version: None,
            above_input_tokens: 0,
            cost_nano_usd: row.row.cost_nano_usd,
        }];
    }
    log.append(&odd).await.unwrap();
    let found = server.rows(&node(1)).await;
    assert_eq!(found[2].row.model_asked, "a\u{fffd}b\u{1F600}\\N\t\"'");
    assert_eq!(
        (found[0].row.time_ms, found[0].row.parts[0].model.as_str()),
        (0, "m\u{fffd}")
    );
    assert_eq!(found[1].row.time_ms, columns::moment(i64::MAX).as_millisecond());
    let cost = |rows: &[Arc<NumberedRow>]| rows.iter().map(|row| row.row.cost_nano_usd.nanos()).sum::<i64>();
    assert_eq!(cost(&found), cost(&odd.rows));
}

#[tokio::test]
async fn what_is_away_or_silent_is_waited_for_no_longer_than_the_limits_and_then_goes_on() {
    let Some(mut server) = ready().await else { return };
    let settings = PostgresSettings {
        connect: Duration::from_secs(5),
        write: Duration::from_secs(5),
        ..server.settings(WRITER)
    };
    let log = PostgresLog::new(settings).unwrap();
    let first = batch(&node(1), 0, 10);
    log.append(&first).await.unwrap();
    server.kill();
    let second = batch(&node(1), first.upto, 10);
    let away = log.append(&second).await.unwrap_err();
    assert!(matches!(&away, SinkError::Unavailable(_)), "{away}");
    let away = log.append(&second).await.unwrap_err().to_string();
    assert!(away.contains("cannot be reached"), "{away}");
    assert!(
        log.page(&LogPageQuery::for_day("account-0", BEGIN_MS / DAY_MS, 10))
            .await
            .is_err()
    );
    server.restart().await;
    log.append(&second).await.unwrap();
    assert_eq!(server.rows_of(&node(1)).await, "20");
    // Somebody holds the lane's row: the batch is late, and nothing is half done.
    let (client, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client
        .batch_execute("BEGIN; LOCK TABLE weir.sink IN EXCLUSIVE MODE")
        .await
        .unwrap();
    let third = batch(&node(1), second.upto, 10);
    let late = log.append(&third).await.unwrap_err();
    assert!(matches!(&late, SinkError::Unavailable(_)), "{late}");
    client.batch_execute("ROLLBACK").await.unwrap();
    driver.abort();
    log.append(&third).await.unwrap();
    assert_eq!(server.rows_of(&node(1)).await, "30");
}

#[tokio::test]
async fn a_full_disk_of_the_server_is_told_and_leaves_nothing_half_done() {
    let Some(server) = ready().await else { return };
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    // The third row does not fit any more.
    server
        .sql(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF new.number >= 7 THEN
                     RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
                 END IF;
                 RETURN new;
             END $$;
             CREATE TRIGGER full_disk BEFORE INSERT ON weir.log FOR EACH ROW EXECUTE FUNCTION full_disk()",
        )
        .await;
    let first = batch(&node(1), 0, 10);
    let full = log.append(&first).await.unwrap_err().to_string();
    assert!(full.contains("No space left on device (53100)"), "{full}");
    assert_eq!(log.watermark(&node(1)).await, Ok(0));
    assert_eq!(server.rows_of(&node(1)).await, "0");
    server.sql("DROP TRIGGER full_disk ON weir.log").await;
    log.append(&first).await.unwrap();
    assert_eq!(server.rows_of(&node(1)).await, "10");
}

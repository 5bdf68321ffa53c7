//! A table that an earlier weir has made.

use std::sync::Arc;

use crate::{
    domain::ledger::{
        consumption::{RequestTransport, Row},
        log_query,
    },
    journal::NumberedRow,
    sinks::{
        Sink,
        contract::{Place, batch, node, pages::of_day},
        postgres::{Grants, PostgresLog, set_up},
    },
};

use super::{BEGIN_MS, DAY_MS, WRITER, ready};

/// Takes what the migrations from the third on have made away again.
const WITHOUT_LATER_COLUMNS: &str = "ALTER TABLE weir.log DROP COLUMN hold_nano_usd, DROP COLUMN attempts, \
    DROP COLUMN input_audio, DROP COLUMN input_image, DROP COLUMN cache_read_audio, DROP COLUMN cache_read_image, \
    DROP COLUMN output_audio, DROP COLUMN output_image, \
    DROP COLUMN transport, DROP COLUMN translated, DROP COLUMN losses; DELETE FROM weir.migration WHERE number >= 3";

#[tokio::test]
async fn a_table_without_later_columns_is_read_and_takes_rows_with_them_after_its_migrations() {
    let Some(server) = ready().await else { return };
    let first = batch(&node(1), 0, 20);
    let second = batch(&node(1), first.upto, 20);
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    log.append(&first).await.unwrap();
    server.sql(WITHOUT_LATER_COLUMNS).await;
    let mut expected = first.rows.clone();
    for row in &mut expected {
        let row = Arc::make_mut(row);
        (row.row.hold_nano_usd, row.row.attempts) = (None, None);
        (row.row.usage.input_audio, row.row.usage.output_image) = (0, 0);
        row.row.transport = RequestTransport::Http;
        (row.row.translated, row.row.losses) = (None, Vec::new());
    }
    let account = &first.rows[0].row.account;
    let in_order = |rows: &[Arc<NumberedRow>]| {
        let of_account = rows.iter().map(|row| &row.row).filter(|row| row.account == *account);
        let mut of_account: Vec<Row> = of_account.cloned().collect();
        of_account.sort_by(|one, other| log_query::row_sort_key(one).cmp(&log_query::row_sort_key(other)));
        of_account
    };
    // Until the migration rows are read as they are, and new ones wait.
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    let found = of_day(&log, account, BEGIN_MS / DAY_MS, 100).await;
    assert_eq!(found, in_order(&expected));
    let refused = log.append(&second).await.unwrap_err();
    assert!(refused.to_string().contains("weir log init"), "{refused}");
    assert_eq!(set_up(&server.own(), &Grants::default()).await.unwrap(), [3, 4, 5]);
    log.append(&second).await.unwrap();
    assert!(second.rows.iter().any(|row| row.row.hold_nano_usd.is_some()));
    assert!(second.rows.iter().any(|row| row.row.usage.output_image > 0));
    assert!(second.rows.iter().any(|row| !row.row.losses.is_empty()));
    expected.extend(second.rows);
    assert_eq!(server.rows(&node(1)).await, expected);
    let found = of_day(&log, account, BEGIN_MS / DAY_MS, 100).await;
    assert_eq!(found, in_order(&expected));
    let sums = "SELECT (count(*) = 40 AND count(hold_nano_usd) < 20 AND max(attempts) = 3)::text FROM weir.log";
    assert_eq!(server.sql(sums).await, ["true"]);
}

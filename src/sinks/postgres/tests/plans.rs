//! How Postgres runs the statements that read the log.

use super::*;
use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            ids::Tag,
            log_query::{LogFilter, LogPosition},
        },
    },
    sinks::{LogPageQuery, postgres::LogQuery},
};

/// The partition of 2 November alone is read, by its index from a condition on.
#[track_caller]
fn assert_reads_one_partition(plan: &str, entered_by: &str) {
    assert!(
        plan.contains("log_20261102") && !plan.contains("log_20261101") && !plan.contains("log_20261103"),
        "{plan}"
    );
    let mut conditions = plan.lines().filter(|line| line.contains("Index Cond:"));
    assert!(conditions.any(|line| line.contains(entered_by)), "{entered_by}: {plan}");
}

#[tokio::test]
async fn questions_read_the_partition_of_their_day_by_its_index() {
    let Some(server) = ready().await else { return };
    let log = PostgresLog::new(server.settings(WRITER)).unwrap();
    let times: Vec<i64> = (0..90).map(|n| BEGIN_MS + n * 1000 + n % 3 * DAY_MS).collect();
    log.append(&batch_of(&node(1), 0, &times)).await.unwrap();
    let day = BEGIN_MS / DAY_MS + 1;
    let key = KeyId::parse("key_0000000000000001").unwrap();
    let all = LogFilter::between(BEGIN_MS, BEGIN_MS + 3 * DAY_MS);
    let of_account = LogFilter {
        account: Some("account-0".to_owned()),
        ..all.clone()
    };
    let narrow = LogFilter {
        key: Some(key.clone()),
        model: Some("claude-sonnet-4-5".to_owned()),
        status: Some(200..=299),
        tag: Tag::parse("team=research"),
        ..of_account.clone()
    };
    let place = LogPosition {
        account: "account-0".into(),
        time_ms: BEGIN_MS + DAY_MS + 5000,
        request_id: "req_7".into(),
    };
    let page = |filter: &LogFilter, after: LogPosition| {
        LogQuery::page(&LogPageQuery {
            after,
            ..LogPageQuery::new(filter.clone(), day, 5)
        })
    };
    let (first, behind, of_all) = (
        page(&of_account, LogPosition::default()),
        page(&narrow, place.clone()),
        page(&all, place),
    );
    let latest = LogQuery::latest(("account-0", &key), &(day..=day), 5);
    for (question, entered_by) in [
        (first, "account = 'account-0'"),
        (behind, "account = 'account-0'"),
        (of_all, "ROW(account, \"time\") >= ROW('account-0'"),
        (latest, "account = 'account-0'"),
    ] {
        let plan = server.plan(&question.sql(), &question.values()).await;
        assert_reads_one_partition(&plan, entered_by);
    }
}

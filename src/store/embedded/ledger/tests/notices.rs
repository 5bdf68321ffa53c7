//! What waits to be told, on the disk.

use super::*;
use crate::domain::ledger::AccountTerms;
use crate::domain::ledger::account::notices::NoticeId;
use crate::store::ledger::contract::limit;

#[tokio::test]
async fn what_waits_to_be_told_outlives_the_process_with_the_charge_that_made_it_so() {
    let folder = tempfile::tempdir().unwrap();
    let terms = AccountTerms {
        low_balance: Some(nanos(995)),
        ..AccountTerms::default()
    };
    let store = opened(folder.path());
    let charge = Step {
        seq: 4,
        change: settled(9, 7, TODAY),
    };
    store.apply(&node(1), "acme", &journal(2), 0).await.unwrap();
    limit(&store, "acme", terms).await;
    store.apply(&node(1), "acme", &[charge], 0).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let of = NoticeId::Balance { seq: 4, node: node(1) };
    // It was taken once before the crash, which is known, and is taken again at once.
    for tries in [1, 2] {
        let store = opened(folder.path());
        let taken = store.take_notices("acme", 0).await.unwrap().notices;
        let seen: Vec<_> = taken.iter().map(|one| (&one.id, one.reached, one.tries)).collect();
        assert_eq!(seen, [(&of, nanos(990), tries)]);
        store.flush().await.unwrap();
    }
    let store = opened(folder.path());
    store.acknowledge_notices("acme", &[of]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let store = opened(folder.path());
    assert!(store.take_notices("acme", 0).await.unwrap().notices.is_empty());
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(4));
    assert_eq!(store.account("acme").await.unwrap().unwrap().record.terms, terms);
}

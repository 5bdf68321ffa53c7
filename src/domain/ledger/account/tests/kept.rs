//! What of an account lasts.

use std::sync::Arc;

use super::*;

#[test]
fn what_was_kept_comes_back_without_its_holds() {
    let mut account = with_balance(100);
    account.admit(&ask("a", 10, rates(Some(9), None, None)), NOON);
    apply(&mut account, 1, [settle("x", NOON, 3, 0, 0)]);
    let json = serde_json::to_string(&(account.summary().unwrap(), account.key(&key_id(1)).unwrap())).unwrap();
    let (standing, key) = serde_json::from_str(&json).unwrap();
    let mut restored = Account::from_stored(standing, [(key_id(1), key)], []);
    assert_eq!(restored.view("acme", NOON).unwrap().held, nanos(0));
    assert_eq!(restored.watermark(&node(1)), 2);
    let mut stale = ask("b", 1, KeyTerms::default());
    Arc::make_mut(&mut stale.key).revision = 0;
    assert_eq!(restored.admit(&stale, NOON), AdmitReply::StaleKey);
    account.release(&node(1));
    assert_eq!(restored.view("acme", NOON), account.view("acme", NOON));
    assert_eq!(
        restored.key_spend(&key_id(1), NOON),
        account.key_spend(&key_id(1), NOON)
    );
}

//! Sessions over a store that is a map, and can be away.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;

use super::*;
use crate::{
    admin::{AdminPeer, sessions::SessionHolder},
    console::layout::Operator,
    domain::{keys::KeyId, sign_in::Role},
    edges::clock,
    store::sessions::ListedWebSession,
};

/// What docs/console.md promises.
const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);
const HALF_A_DAY: Duration = Duration::from_secs(43_200);

/// Whose each session is.
type Shelved = HashMap<SessionDigest, String>;

/// A store of sessions that never end by themselves.
#[derive(Debug, Default)]
struct Shelf {
    sessions: Mutex<Shelved>,
    away: AtomicBool,
}

impl Shelf {
    fn open(&self) -> Result<parking_lot::MutexGuard<'_, Shelved>, StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(self.sessions.lock())
    }
}

#[async_trait]
impl WebSessionStore for Shelf {
    async fn begin(&self, id: &SessionDigest, who: &str, lasts: SessionLifetime) -> Result<(), StoreError> {
        assert_eq!((lasts.idle, lasts.whole), (HALF_AN_HOUR, HALF_A_DAY));
        self.open()?.insert(*id, who.to_owned());
        Ok(())
    }

    async fn visit(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        Ok(self.open()?.get(id).cloned())
    }

    async fn end(&self, id: &SessionDigest) -> Result<Option<String>, StoreError> {
        Ok(self.open()?.remove(id))
    }

    async fn list_web_sessions(&self, most: usize) -> Result<Vec<ListedWebSession>, StoreError> {
        let sessions = self.open()?;
        let listed = sessions.iter().map(|(id, who)| ListedWebSession {
            id: *id,
            who: who.clone(),
            idle_ends_ms: 0,
            ends_ms: 0,
        });
        Ok(listed.take(most).collect())
    }
}

/// Two nodes at one store.
fn nodes() -> (Arc<Shelf>, BrowserSessions, BrowserSessions) {
    let shelf = Arc::new(Shelf::default());
    let node = || BrowserSessions::new("door", Arc::clone(&shelf) as Arc<dyn WebSessionStore>);
    let (one, other) = (node(), node());
    (shelf, one, other)
}

async fn found(node: &BrowserSessions, text: &str, now: Instant) -> Option<BrowserSession<String>> {
    node.find(text, now).await.unwrap()
}

#[tokio::test]
async fn all_nodes_know_a_session_and_none_after_its_end() {
    let (_, one, other) = nodes();
    let now = clock::instant();
    let text = one.open(&"me", now).await;
    assert_eq!(text.len(), ID_CHARS);
    for node in [&one, &other] {
        assert_eq!(found(node, &text, now).await.unwrap().who, "me");
        for made_up in ["", "x", text.get(1..).unwrap()] {
            assert!(found(node, made_up, now).await.is_none());
        }
    }
    let other_door = BrowserSessions::new("other door", Arc::clone(&one.store));
    assert!(found(&other_door, &text, now).await.is_none());
    one.close(&text).await.unwrap();
    assert!(found(&other, &text, now).await.is_none() && found(&one, &text, now).await.is_none());
}

#[tokio::test]
async fn while_the_store_is_away_a_node_knows_those_it_has_seen_within_their_time() {
    let (shelf, one, other) = nodes();
    let now = clock::instant();
    let text = one.open(&"me", now).await;
    shelf.away.store(true, Ordering::SeqCst);
    let late = now + HALF_AN_HOUR - Duration::from_secs(1);
    assert_eq!(found(&one, &text, late).await.unwrap().who, "me");
    assert!(other.find::<String>(&text, now).await.is_err(), "it has not seen it");
    assert!(one.find::<String>("made up", now).await.is_err());
    assert!(
        one.find::<String>(&text, late + HALF_AN_HOUR).await.is_err(),
        "idle for half an hour"
    );
    let mut at = late;
    while at < now + HALF_A_DAY {
        assert!(found(&one, &text, at).await.is_some());
        at += HALF_AN_HOUR / 2;
    }
    assert!(one.find::<String>(&text, at).await.is_err(), "half a day in all");
    // One that was opened meanwhile is good until the store has the last word.
    let text = one.open(&"me", now).await;
    assert!(found(&one, &text, now).await.is_some());
    shelf.away.store(false, Ordering::SeqCst);
    assert!(found(&one, &text, now).await.is_none());
}

#[tokio::test]
async fn whose_a_session_is_may_change_at_any_node() {
    let (_, one, other) = nodes();
    let now = clock::instant();
    let text = one.open(&"me".to_owned(), now).await;
    let session = found(&other, &text, now).await.unwrap();
    other.set_person(&session, &"me, rotated".to_owned()).await.unwrap();
    assert_eq!(found(&one, &text, now).await.unwrap().who, "me, rotated");
}

#[tokio::test]
async fn the_admin_api_reads_whose_the_sessions_of_both_doors_are() {
    let (shelf, ..) = nodes();
    let now = clock::instant();
    let opened_by = AdminPeer::Process {
        uid: Some(7),
        pid: None,
    };
    let role = Role::Viewer;
    let operator = Operator { opened_by, role };
    let key = KeyId::parse("key_0123456789abcdef").unwrap();
    let digest = crate::store::contract::digest(1);
    let owner = crate::console::portal::KeyOwner {
        key: key.clone(),
        digest,
    };
    let at = |door| BrowserSessions::new(door, Arc::clone(&shelf) as Arc<dyn WebSessionStore>);
    at("console").open(&operator, now).await;
    at("portal").open(&owner, now).await;
    shelf
        .begin(&SessionDigest::of("openid", "x"), "openid", SESSION_LIFETIME)
        .await
        .unwrap();
    let listed = shelf.list_web_sessions(9).await.unwrap();
    let mut holders: Vec<SessionHolder> = listed.iter().filter_map(|one| SessionHolder::read(&one.who)).collect();
    holders.sort_by_key(|holder| matches!(holder, SessionHolder::Portal { .. }));
    let opened_by = operator.opened_by;
    assert_eq!(
        holders,
        [
            SessionHolder::Console { opened_by, role },
            SessionHolder::Portal { key }
        ]
    );
}

#[tokio::test]
async fn beyond_the_most_the_one_that_was_idle_for_longest_is_not_remembered() {
    let (shelf, mut one, _) = nodes();
    one.most = 2;
    let now = clock::instant();
    let open = async || one.open(&"me", now).await;
    let (first, second) = (open().await, open().await);
    found(&one, &first, now).await.unwrap();
    let third = open().await;
    shelf.away.store(true, Ordering::SeqCst);
    assert!(one.find::<String>(&second, now).await.is_err());
    assert!(found(&one, &first, now).await.is_some() && found(&one, &third, now).await.is_some());
}

#[tokio::test]
async fn a_token_is_good_for_one_session_one_operation_and_one_place() {
    let (_, one, other) = nodes();
    let now = clock::instant();
    let (mine, others) = (one.open(&"me", now).await, one.open(&"me", now).await);
    let token = found(&one, &mine, now).await.unwrap().token("op", "/keys");
    let mine = found(&other, &mine, now).await.unwrap();
    assert!(mine.is_valid_token(&token, "op", "/keys"), "at every node");
    assert!(!mine.is_valid_token(&token, "op2", "/keys") && !mine.is_valid_token(&token, "op", "/keys/x"));
    let others = found(&one, &others, now).await.unwrap();
    assert!(!others.is_valid_token(&token, "op", "/keys") && !mine.is_valid_token("", "op", "/keys"));
}

//! Tests of how agents sign in, on an embedded store and a clock of their own.

use super::*;
use crate::store::contract::{Changing, digest, id, record, to};
use crate::store::embedded::EmbeddedStore;

const SETTINGS: SignInSettings = SignInSettings {
    lifetimes: TokenLifetimes {
        access_seconds: 3600,
        sign_in_seconds: 30 * 86_400,
    },
    codes_max: 3,
};

struct Fixture {
    sign_ins: AgentSignIns,
    store: Arc<EmbeddedStore>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// With one key that works.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(folder.path()).unwrap());
        let time = Arc::new(StoreTime::new(clock::instant()));
        let key = crate::domain::keys::KeyRecord {
            expires_at: None,
            ..record(1, 100)
        };
        store.create(&digest(1), &key).await.unwrap();
        let (documents, keys) = (Arc::clone(&store) as _, Arc::clone(&store) as _);
        Self {
            sign_ins: AgentSignIns::new(documents, keys, time, KeyPrefix::default(), SETTINGS),
            store,
            _folder: folder,
        }
    }

    /// Lets so many seconds pass by the store's clock.
    fn later(&self, seconds: i64) {
        let (now, now_unix) = self.sign_ins.now();
        self.sign_ins.time.record((now_unix + seconds) * 1000, now, now);
    }

    async fn key(&self) -> KeyView {
        self.store.by_id(&id(1)).await.unwrap().unwrap()
    }

    async fn approved(&self) -> DeviceCode {
        let code = self.sign_ins.begin().await.unwrap();
        let key = self.key().await;
        assert_eq!(self.sign_ins.decide(code.user_code(), &key, true).await, Ok(true));
        code
    }

    async fn signed_in(&self) -> IssuedTokens {
        self.sign_ins.redeem(&self.approved().await).await.unwrap()
    }

    async fn stands_for(&self, tokens: &IssuedTokens) -> Option<KeyDigest> {
        let found = self.store.find(&tokens.access.digest()).await.unwrap();
        found.token.and_then(|grant| grant.key_digest_at(self.sign_ins.now().1))
    }
}

async fn refused<T: std::fmt::Debug>(asked: impl Future<Output = Result<T, SignInError>>) -> SignInError {
    asked.await.unwrap_err()
}

#[tokio::test]
async fn a_code_gives_tokens_once_it_is_approved_and_once_only() {
    let all = Fixture::new().await;
    let code = all.sign_ins.begin().await.unwrap();
    assert_eq!(refused(all.sign_ins.redeem(&code)).await, SignInError::Pending);
    assert_eq!(refused(all.sign_ins.redeem(&code)).await, SignInError::SlowDown);
    let waiting = all.sign_ins.pending(code.user_code()).await.unwrap().unwrap();
    assert!(waiting.seconds <= 1);
    let code = all.approved().await;
    assert_eq!(all.sign_ins.pending(code.user_code()).await, Ok(None), "it is decided");
    let key = all.key().await;
    assert_eq!(all.sign_ins.decide(code.user_code(), &key, false).await, Ok(false));
    let (one, other) = tokio::join!(all.sign_ins.redeem(&code), all.sign_ins.redeem(&code));
    let (tokens, refused) = match (one, other) {
        (Ok(tokens), Err(refused)) | (Err(refused), Ok(tokens)) => (tokens, refused),
        both => panic!("{both:?}"),
    };
    assert!(
        matches!(refused, SignInError::InvalidGrant | SignInError::SlowDown),
        "{refused:?}"
    );
    assert_eq!(all.stands_for(&tokens).await, Some(digest(1)));
    assert_eq!(all.sign_ins.count(&id(1)).await, Ok(1));
    assert_eq!(
        self::refused(all.sign_ins.redeem(&code)).await,
        SignInError::InvalidGrant
    );
}

#[tokio::test]
async fn what_was_refused_or_comes_too_late_gives_nothing() {
    let all = Fixture::new().await;
    let key = all.key().await;
    let denied = all.sign_ins.begin().await.unwrap();
    assert_eq!(all.sign_ins.decide(denied.user_code(), &key, false).await, Ok(true));
    assert_eq!(refused(all.sign_ins.redeem(&denied)).await, SignInError::Denied);
    let late = all.approved().await;
    all.later(600);
    assert_eq!(refused(all.sign_ins.redeem(&late)).await, SignInError::Expired);
    assert_eq!(all.sign_ins.pending(late.user_code()).await, Ok(None));
    let never = DeviceCode::generate(&mut rand::rng());
    assert_eq!(refused(all.sign_ins.redeem(&never)).await, SignInError::InvalidGrant);
    assert_eq!(all.sign_ins.decide(never.user_code(), &key, true).await, Ok(false));
    let guessed = format!("{}-{}", late.user_code().letters(), "x".repeat(43));
    let guessed = DeviceCode::parse(&guessed).unwrap();
    assert_eq!(refused(all.sign_ins.redeem(&guessed)).await, SignInError::InvalidGrant);
    assert_eq!(all.sign_ins.count(&id(1)).await, Ok(0));
}

#[tokio::test]
async fn so_many_codes_wait_and_no_more() {
    let all = Fixture::new().await;
    for _ in 0..SETTINGS.codes_max {
        all.sign_ins.begin().await.unwrap();
    }
    assert_eq!(refused(all.sign_ins.begin()).await, SignInError::TooMany);
}

#[tokio::test]
async fn a_key_that_does_not_work_any_more_ends_everything() {
    for rotated in [false, true] {
        let all = Fixture::new().await;
        let tokens = all.signed_in().await;
        let code = all.approved().await;
        match rotated {
            true => drop(all.store.rotate(&id(1), &to(2, "hint", None)).await.unwrap()),
            false => drop(all.store.revoke(&id(1), 1).await.unwrap()),
        }
        assert_eq!(
            refused(all.sign_ins.redeem(&code)).await,
            SignInError::Denied,
            "{rotated}"
        );
        assert_eq!(
            refused(all.sign_ins.refresh(&tokens.refresh)).await,
            SignInError::InvalidGrant,
            "{rotated}"
        );
        let key = all.stands_for(&tokens).await.unwrap();
        let works = all.store.find(&key).await.unwrap().record;
        assert!(works.is_none_or(|record| record.check(&key, 1).is_err()), "{rotated}");
    }
}

#[tokio::test]
async fn tokens_are_refreshed_until_the_sign_in_ends() {
    let all = Fixture::new().await;
    let first = all.signed_in().await;
    assert_eq!(first.lasts_seconds, 3600);
    all.later(3600);
    assert_eq!(all.stands_for(&first).await, None, "its time is over");
    let second = all.sign_ins.refresh(&first.refresh).await.unwrap();
    assert_eq!(all.stands_for(&second).await, Some(digest(1)));
    all.later(100);
    let stolen = refused(all.sign_ins.refresh(&first.refresh)).await;
    assert_eq!(stolen, SignInError::InvalidGrant);
    assert_eq!(all.stands_for(&second).await, None, "both have it, so nobody goes on");
    assert_eq!(
        refused(all.sign_ins.refresh(&second.refresh)).await,
        SignInError::InvalidGrant
    );
}

#[tokio::test]
async fn a_sign_in_is_given_back_by_either_token() {
    let all = Fixture::new().await;
    let (one, two, three) = (all.signed_in().await, all.signed_in().await, all.signed_in().await);
    assert_eq!(all.sign_ins.count(&id(1)).await, Ok(3));
    all.sign_ins.revoke(one.access.as_str()).await.unwrap();
    all.sign_ins.revoke(&two.refresh.text()).await.unwrap();
    let guessed = RefreshToken::generate(&KeyPrefix::default(), &id(1), three.refresh.sign_in(), &mut rand::rng());
    for nothing in ["", "x", one.access.as_str(), &two.refresh.text(), &guessed.text()] {
        all.sign_ins.revoke(nothing).await.unwrap();
    }
    assert_eq!(all.stands_for(&one).await, None);
    assert_eq!(all.stands_for(&two).await, None);
    assert_eq!(all.stands_for(&three).await, Some(digest(1)));
    assert_eq!(all.sign_ins.count(&id(1)).await, Ok(1));
    all.sign_ins.end_all(&id(1)).await.unwrap();
    assert_eq!(
        (all.stands_for(&three).await, all.sign_ins.count(&id(1)).await),
        (None, Ok(0))
    );
}

#[tokio::test]
async fn many_sign_ins_of_one_key_at_once_are_all_kept() {
    let all = Fixture::new().await;
    let codes = [all.approved().await, all.approved().await, all.approved().await];
    let [one, two, three] = &codes;
    let made = tokio::join!(
        all.sign_ins.redeem(one),
        all.sign_ins.redeem(two),
        all.sign_ins.redeem(three)
    );
    for tokens in [made.0, made.1, made.2] {
        assert_eq!(all.stands_for(&tokens.unwrap()).await, Some(digest(1)));
    }
    assert_eq!(all.sign_ins.count(&id(1)).await, Ok(3));
}

#[tokio::test]
async fn what_stands_on_the_text_before_a_rotation_lasts_as_long_as_that() {
    let all = Fixture::new().await;
    let tokens = all.signed_in().await;
    let code = all.approved().await;
    let (_, now) = all.sign_ins.now();
    all.store.rotate(&id(1), &to(2, "hint", Some(now + 100))).await.unwrap();
    let second = all.sign_ins.redeem(&code).await.unwrap();
    let refreshed = all.sign_ins.refresh(&tokens.refresh).await.unwrap();
    let key = all.stands_for(&refreshed).await.unwrap();
    let record = all.store.find(&key).await.unwrap().record.unwrap();
    assert_eq!(record.check(&key, now + 99), Ok(()));
    assert!(record.check(&key, now + 100).is_err(), "no token outlives the text");
    all.later(200);
    for tokens in [refreshed, second] {
        assert_eq!(
            refused(all.sign_ins.refresh(&tokens.refresh)).await,
            SignInError::InvalidGrant
        );
    }
    let (code, view) = (all.sign_ins.begin().await.unwrap(), all.key().await);
    assert_eq!(all.sign_ins.decide(code.user_code(), &view, true).await, Ok(true));
    assert!(all.sign_ins.redeem(&code).await.is_ok(), "the new text signs in");
}

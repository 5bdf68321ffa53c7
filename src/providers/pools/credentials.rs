//! Chooses the credential with which a request is sent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::domain::{faults::COOLDOWN_MAX, rules::Credential};
use crate::providers::pools::{Breaker, CircuitPermit, Probing};

/// A provider's credentials.
#[derive(Debug, Default)]
pub(crate) struct Credentials(Vec<Arc<CredentialState>>);

/// A credential with its circuit.
#[derive(Debug)]
pub(crate) struct CredentialState {
    /// The name, weight and secret, as configured.
    pub credential: Credential,
    /// The digest of the secret, which identifies the secret across reloads.
    digest: [u8; 32],
    breaker: Breaker,
}

/// A credential chosen for a request.
#[derive(Debug)]
pub(crate) struct ChosenCredential {
    /// The chosen credential with its circuit.
    pub state: Arc<CredentialState>,
    /// The permit with which the caller reports whether the provider accepted the credential.
    pub permit: CircuitPermit,
}

impl CredentialState {
    /// Starts a cooldown. It lasts for `pause`, but at most [`COOLDOWN_MAX`]. During the cooldown, the credential is not chosen.
    /// A longer cooldown that is already in progress is kept. After the cooldown, one request probes the credential before others
    /// use it.
    pub(crate) fn cool_down(&self, pause: Duration, now: Instant) {
        self.breaker.open_for(pause.min(COOLDOWN_MAX), now);
    }

    /// Returns when the credential's cooldown ends; `None` if it has no cooldown now.
    pub(crate) fn cooldown_end(&self, now: Instant) -> Option<Instant> {
        self.breaker.open_until(now)
    }
}

impl Credentials {
    /// Creates the credentials of a provider. A secret that is also in `known` keeps its cooldown, even under another name.
    pub(crate) fn new(credentials: &[Credential], known: Option<&Self>) -> Self {
        let state = |credential: &Credential| {
            let digest: [u8; 32] = Sha256::digest(credential.secret.expose()).into();
            let same = known.and_then(|known| known.0.iter().find(|other| other.digest == digest));
            Arc::new(CredentialState {
                credential: credential.clone(),
                digest,
                breaker: same.map(|same| same.breaker.clone()).unwrap_or_default(),
            })
        };
        Self(credentials.iter().map(state).collect())
    }

    /// The number of credentials.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All credentials, in the order of the configuration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CredentialState>> {
        self.0.iter()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<CredentialState>> {
        self.0.iter().find(|one| one.credential.name == name)
    }

    /// Whether [`Credentials::choose_available`] would find a credential.
    pub(crate) fn has_available(&self, probing: Probing, now: Instant) -> bool {
        self.0.iter().any(|one| one.breaker.admits(probing, now))
    }

    /// Returns when the first cooldown ends; `None` if at least one credential has no cooldown now.
    pub(crate) fn first_available_at(&self, now: Instant) -> Option<Instant> {
        self.0.iter().map(|one| one.cooldown_end(now)).min().flatten()
    }

    /// Chooses the credential with this name, even during its cooldown, because no other credential can serve the request.
    /// Returns `None` if no credential has this name.
    pub(crate) fn choose_named(&self, name: &str, now: Instant) -> Option<ChosenCredential> {
        self.get(name).map(|one| force(one, now))
    }

    /// Chooses a credential. A credential in its cooldown is not chosen while another one is available.
    ///
    /// A session keeps its credential. The credential is found by weighted rendezvous hashing of the session's number. So an
    /// added credential takes over some sessions, the sessions of a removed credential move to others, and all other sessions
    /// stay. The hash uses the credential's name and not its secret, so a session keeps its credential when the secret is
    /// replaced. The name stands for an account at the provider. Caches and state belong to that account. Without a session, the
    /// weights and `dice` (in 0..1) decide. If all credentials are in their cooldowns, the one whose cooldown ends first is used,
    /// because only the provider can say whether it works again.
    pub(crate) fn choose(
        &self,
        session: Option<u64>,
        dice: f64,
        probing: Probing,
        now: Instant,
    ) -> Option<ChosenCredential> {
        self.choose_available(&[], session, dice, probing, now).or_else(|| {
            let first = self.0.iter().min_by_key(|one| one.cooldown_end(now));
            first.map(|one| force(one, now))
        })
    }

    /// Does the same as [`Credentials::choose`], but only among available credentials that are not in `tried`; returns `None` if
    /// there is none.
    pub(crate) fn choose_available(
        &self,
        tried: &[Arc<CredentialState>],
        session: Option<u64>,
        dice: f64,
        probing: Probing,
        now: Instant,
    ) -> Option<ChosenCredential> {
        let mut passed: SmallVec<[Arc<CredentialState>; 2]> = tried.iter().cloned().collect();
        loop {
            let best = self.best(&passed, session, dice, |one| one.breaker.admits(probing, now))?;
            if let Some(permit) = best.breaker.enter(probing, now) {
                let state = Arc::clone(best);
                return Some(ChosenCredential { state, permit });
            }
            // Another request has become the probe of this credential, so the next one is tried.
            passed.push(Arc::clone(best));
        }
    }

    fn best(
        &self,
        passed: &[Arc<CredentialState>],
        session: Option<u64>,
        dice: f64,
        is_awake: impl Fn(&CredentialState) -> bool,
    ) -> Option<&Arc<CredentialState>> {
        let is_passed = |one: &Arc<CredentialState>| passed.iter().any(|other| Arc::ptr_eq(one, other));
        // Evaluated once, because the result may change between two evaluations.
        let awake: SmallVec<[&Arc<CredentialState>; 8]> =
            self.0.iter().filter(|one| is_awake(one) && !is_passed(one)).collect();
        let weight = |one: &CredentialState| f64::from(one.credential.weight);
        if let Some(session) = session {
            let score = |one: &Arc<CredentialState>| -weight(one) / fraction(&one.credential.name, session).ln();
            return awake
                .into_iter()
                .max_by(|left, right| score(left).total_cmp(&score(right)));
        }
        let mut at = dice.clamp(0.0, 1.0) * awake.iter().map(|one| weight(one)).sum::<f64>();
        let mut last = None;
        for one in awake {
            at -= weight(one);
            last = Some(one);
            if at < 0.0 {
                break;
            }
        }
        last
    }
}

fn force(state: &Arc<CredentialState>, now: Instant) -> ChosenCredential {
    ChosenCredential {
        state: Arc::clone(state),
        permit: state.breaker.force_enter(now),
    }
}

/// Derives a number between 0 and 1, both excluded, from the credential's name and the session's number.
fn fraction(credential: &str, session: u64) -> f64 {
    let hash = Sha256::new()
        .chain_update(credential)
        .chain_update(session.to_be_bytes())
        .finalize();
    let mut bytes = [0; 4];
    for (to, from) in bytes.iter_mut().zip(hash) {
        *to = from;
    }
    (f64::from(u32::from_be_bytes(bytes)) + 0.5) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::domain::keys::secret::Secret;

    fn credentials(weights: &[u16]) -> Credentials {
        let all: Vec<Credential> = weights
            .iter()
            .enumerate()
            .map(|(index, weight)| credential(format!("c{index}"), *weight, format!("secret-{index}")))
            .collect();
        Credentials::new(&all, None)
    }

    fn credential(name: String, weight: u16, secret: String) -> Credential {
        Credential::new(name, weight, "Bearer ", Secret::new(secret)).unwrap()
    }

    const ANY: Probing = Probing::Allowed;

    fn name(chosen: Option<ChosenCredential>) -> String {
        chosen.map_or_else(String::new, |one| one.state.credential.name.clone())
    }

    #[test]
    fn weights_share_requests_and_sessions() {
        let all = credentials(&[1, 3]);
        let now = crate::edges::clock::instant();
        for with_session in [false, true] {
            let mut counts: HashMap<String, u32> = HashMap::new();
            for index in 0..4000_u32 {
                let session = with_session.then_some(u64::from(index));
                let dice = f64::from(index) / 4000.0;
                *counts.entry(name(all.choose(session, dice, ANY, now))).or_default() += 1;
            }
            assert!((850..=1150).contains(&counts["c0"]), "{counts:?}");
        }
    }

    #[test]
    fn a_session_keeps_its_credential_while_others_come_and_go() {
        let (two, three) = (credentials(&[1, 1]), credentials(&[1, 1, 1]));
        let now = crate::edges::clock::instant();
        for session in 0..500 {
            let before = name(two.choose(Some(session), 0.1, ANY, now));
            assert_eq!(before, name(two.choose(Some(session), 0.9, ANY, now)));
            let after = name(three.choose(Some(session), 0.5, ANY, now));
            assert!(after == before || after == "c2", "{before} became {after}");
        }
    }

    #[test]
    fn a_new_secret_under_the_same_name_moves_no_session() {
        let before = credentials(&[1, 2, 1]);
        let rotated: Vec<Credential> = before
            .iter()
            .map(|one| {
                let Credential { name, weight, .. } = one.credential.clone();
                let secret = format!("new-{name}");
                credential(name, weight, secret)
            })
            .collect();
        let after = Credentials::new(&rotated, Some(&before));
        let now = crate::edges::clock::instant();
        for session in 0..500 {
            assert_eq!(
                name(before.choose(Some(session), 0.1, ANY, now)),
                name(after.choose(Some(session), 0.9, ANY, now)),
                "session {session}"
            );
        }
    }

    #[test]
    fn what_rests_is_passed_over_until_it_wakes() {
        let all = credentials(&[1, 1]);
        let now = crate::edges::clock::instant();
        let first = Arc::clone(all.get("c0").unwrap());
        first.cool_down(Duration::from_secs(9), now);
        for dice in [0.0, 0.99] {
            assert_eq!(name(all.choose(None, dice, ANY, now)), "c1");
        }
        all.get("c1").unwrap().cool_down(Duration::from_secs(20), now);
        assert_eq!(
            name(all.choose(None, 0.99, ANY, now)),
            "c0",
            "all rest: the one that wakes first"
        );
        assert!(!all.has_available(ANY, now) && all.choose_available(&[], None, 0.0, ANY, now).is_none());
        assert_eq!(all.first_available_at(now), first.cooldown_end(now));
        let later = now + Duration::from_secs(9);
        assert_eq!(name(all.choose_available(&[], None, 0.9, ANY, later)), "c0");
        assert!(all.choose_available(&[first], None, 0.9, ANY, later).is_none());
    }

    #[test]
    fn when_a_rest_is_over_one_request_asks_and_the_others_go_on_elsewhere() {
        let all = credentials(&[1, 1]);
        let now = crate::edges::clock::instant();
        all.get("c0").unwrap().cool_down(Duration::from_secs(9), now);
        let later = now + Duration::from_secs(9);
        for (succeeded, session) in [None, Some(7)].into_iter().enumerate() {
            let chosen: Vec<ChosenCredential> = (0..8).filter_map(|_| all.choose(session, 0.0, ANY, later)).collect();
            let with_first = chosen.iter().filter(|one| one.state.credential.name == "c0").count();
            assert!(
                chosen.len() == 8 && with_first <= 1 + succeeded,
                "{with_first} of {}",
                chosen.len()
            );
            for one in chosen {
                one.permit.report_success(later);
            }
        }
        assert_eq!(
            name(all.choose(None, 0.0, Probing::Never, later)),
            "c1",
            "not trusted yet"
        );
    }

    #[test]
    fn a_rest_is_bounded_and_never_shortened() {
        let all = credentials(&[1]);
        let now = crate::edges::clock::instant();
        let one = all.get("c0").unwrap();
        one.cool_down(Duration::from_secs(1 << 40), now);
        one.cool_down(Duration::from_secs(1), now);
        assert_eq!(one.cooldown_end(now), Some(now + COOLDOWN_MAX));
    }

    #[test]
    fn a_reload_keeps_the_rest_of_the_same_secret() {
        let before = credentials(&[1, 1]);
        let now = crate::edges::clock::instant();
        before.get("c1").unwrap().cool_down(Duration::from_secs(9), now);
        let renamed = credential("other".to_owned(), 7, "secret-1".to_owned());
        let after = Credentials::new(&[renamed], Some(&before));
        assert!(after.get("other").unwrap().cooldown_end(now).is_some());
    }
}

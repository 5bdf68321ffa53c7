//! Tests of `attempts`: requests one after the other, at providers whose answers are written down.

use proptest::prelude::*;

use super::*;
use crate::{
    domain::{
        catalogue::{Catalogue, CatalogueSettings},
        faults::circuit::{EJECTED_AFTER, EJECTED_FIRST, READMITTED_AFTER},
        keys::secret::Secret,
        money::price::PriceList,
        rules::{RawModel, RuleFile},
        wire::{operation::Operation, provider_state::StateId, session_hint::ServedBy},
    },
    edges::{
        clock,
        resolver::{Resolver, ResolverSettings},
    },
    providers::{Routes, pools::Pools},
};

/// What a provider does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answer(u16),
    /// No connection stands.
    Refuse,
    /// No answer comes, or the connection is closed before one.
    Fall,
}

const OK: Does = Does::Answer(200);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// The providers that were connected to, or tried to be, in order.
    asked: Vec<String>,
    /// The provider that answered the client, and its status.
    end: Option<(String, u16)>,
}

/// A model `m` that providers serve in this order.
struct World {
    catalogue: Catalogue,
    pools: Arc<Pools>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    /// Each with so many credentials.
    fn new(providers: &[(&str, usize)]) -> Self {
        let files: Vec<RuleFile> = providers.iter().enumerate().map(rule_file).collect();
        let settings = CatalogueSettings {
            models: vec![RawModel {
                name: "m".to_owned(),
                providers: providers.iter().map(|(name, _)| (*name).to_owned()).collect(),
                free: true,
                ..RawModel::default()
            }],
            ..CatalogueSettings::default()
        };
        let secrets =
            |secret: &crate::domain::catalogue::SecretRef| Ok(Some(Secret::new(format!("secret-of-{secret}"))));
        let (catalogue, _) = Catalogue::build(&files, &settings, &PriceList::shipped().unwrap(), &secrets)
            .unwrap_or_else(|errors| panic!("{errors:?}"));
        let resolving = ResolverSettings {
            refresh: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
        };
        let resolver = Arc::new(Resolver::new(Vec::new(), resolving));
        let pools = Arc::new(Pools::build(&catalogue, &resolver, None));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(pools.update());
        Self {
            catalogue,
            pools,
            runtime,
        }
    }

    fn begin_as(&self, session: Option<SessionHint>, probing: Probing, now: Instant) -> AttemptPlan {
        let routes = Routes::prepare(&self.catalogue, &self.pools);
        let model = self.catalogue.find("m").unwrap();
        let route = routes.find(model, Operation::Messages, |_| false).unwrap();
        AttemptPlan::begin(&route, session, probing, 0.5, now).unwrap()
    }

    fn begin(&self, now: Instant) -> AttemptPlan {
        self.begin_as(None, Probing::Allowed, now)
    }

    /// One request, to its end.
    fn run(&self, now: Instant, does: impl FnMut(&str) -> Does) -> Run {
        run(self.begin(now), now, does)
    }

    /// Has a provider fail until it is passed over.
    fn eject(&self, ill: &str, now: Instant) {
        for _ in 0..EJECTED_AFTER {
            let run = self.run(now, |name| if name == ill { Does::Answer(500) } else { OK });
            assert!(run.asked.contains(&ill.to_owned()), "{run:?}");
        }
    }
}

fn rule_file((number, (name, credentials)): (usize, &(&str, usize))) -> RuleFile {
    let credential = |at: usize| {
        format!(
            "[[credential]]\nname = \"c{at}\"\nsecret = \"env:SECRET_{at}_{}\"\n",
            name.to_uppercase()
        )
    };
    let credentials: String = (0..*credentials).map(credential).collect();
    let text = format!(
        "name = \"{name}\"\n[auth]\nstyle = \"bearer\"\n{credentials}[endpoints]\nmessages = \"http://127.0.0.1:{}/v1/messages\"\n",
        1000 + number
    );
    RuleFile {
        name: format!("{name}.toml"),
        text,
    }
}

fn run(mut attempts: AttemptPlan, now: Instant, mut does: impl FnMut(&str) -> Does) -> Run {
    let mut asked = Vec::new();
    let end = loop {
        attempts.take_pause();
        if attempts.next_backend(0.5, now).is_none() {
            break None;
        }
        let name = attempts.endpoint().provider.name.clone();
        asked.push(name.clone());
        let again = match does(&name) {
            Does::Refuse => attempts.on_connect_failed(1, 0.5, now),
            Does::Fall => {
                attempts.on_connected();
                attempts.on_no_answer(true, 0.5, now)
            }
            Does::Answer(status) => {
                attempts.on_connected();
                if !attempts.on_answer(&answered(status), 0.5, now) {
                    break Some((name, status));
                }
                true
            }
        };
        if !again {
            break None;
        }
    };
    Run { asked, end }
}

fn answered(status: u16) -> AnswerOutcome {
    AnswerOutcome {
        status,
        refused: matches!(status, 401..=403),
        asked_pause: None,
        can_resend: true,
        never_began: false,
    }
}

fn served_by(name: &str) -> Option<(String, u16)> {
    Some((name.to_owned(), 200))
}

#[test]
fn whatever_the_first_fails_with_the_second_serves_and_the_first_is_soon_passed_over() {
    for fails in [
        Does::Answer(500),
        Does::Answer(503),
        Does::Answer(529),
        Does::Answer(429),
        Does::Answer(401),
        Does::Refuse,
        Does::Fall,
    ] {
        let world = World::new(&[("a", 1), ("b", 1)]);
        let now = clock::instant();
        let mut asked = 0;
        for number in 0..1000 {
            let run = world.run(now, |name| if name == "a" { fails } else { OK });
            assert_eq!(run.end, served_by("b"), "{fails:?}: {number}");
            asked += run.asked.len();
        }
        assert!(asked <= 1000 + 2 * EJECTED_AFTER as usize, "{fails:?}: {asked}");
        let last = world.run(now, |name| if name == "a" { fails } else { OK });
        assert_eq!(last.asked, ["b"], "{fails:?}");
    }
}

#[test]
fn a_provider_that_fails_now_and_then_never_blocks_the_way_to_a_well_one() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    let mut turn = 0;
    for number in 0..1000 {
        let run = world.run(now, |name| {
            turn += 1;
            match name {
                "a" if turn % 2 == 0 => Does::Answer(529),
                _ => OK,
            }
        });
        assert!(run.end.is_some_and(|(_, status)| status == 200), "{number}");
    }
}

#[test]
fn when_all_fail_each_gets_no_more_than_its_share() {
    for fails in [Does::Answer(500), Does::Answer(529), Does::Refuse, Does::Fall] {
        let world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
        let start = clock::instant();
        let mut asked = Vec::new();
        for number in 0..2000_u32 {
            let now = start + Duration::from_millis(5) * number;
            asked.extend(world.run(now, |_| fails).asked);
        }
        // A connect is tried once more by itself.
        let each = if fails == Does::Refuse { 2 } else { 1 };
        let most = 2000 * each * 11 / 10 + 60;
        assert!(asked.len() <= most && asked.len() >= 2000, "{fails:?}: {}", asked.len());
    }
}

#[test]
fn one_request_probes_and_the_others_go_elsewhere_until_it_has_succeeded() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let now = now + EJECTED_FIRST;
    let begin = || (0..8).map(|_| world.begin(now)).collect::<Vec<_>>();
    for together in 1..=3_usize {
        let (mut probing, others): (Vec<AttemptPlan>, Vec<AttemptPlan>) =
            begin().into_iter().partition(|one| one.endpoint().provider.name == "a");
        assert_eq!((probing.len(), others.len()), (together, 8 - together));
        assert_eq!(run(probing.remove(0), now, |_| OK).end, served_by("a"));
    }
    for _ in 0..READMITTED_AFTER {
        world.run(now, |_| OK);
    }
    assert!(begin().iter().all(|one| one.endpoint().provider.name == "a"));
}

#[test]
fn a_probe_that_fails_goes_on_at_once_and_the_next_waits_twice_as_long() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let a_fails = |name: &str| if name == "a" { Does::Answer(500) } else { OK };
    let now = now + EJECTED_FIRST;
    let probe = world.run(now, a_fails);
    assert_eq!(
        (probe.asked, probe.end),
        (vec!["a".to_owned(), "b".to_owned()], served_by("b"))
    );
    let later = now + EJECTED_FIRST * 2;
    assert_eq!(world.run(later - Duration::from_millis(1), a_fails).asked, ["b"]);
    assert_eq!(world.run(later, a_fails).asked, ["a", "b"]);
}

#[test]
fn a_request_that_cannot_be_sent_twice_is_no_probe() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let now = now + EJECTED_FIRST;
    let once = world.begin_as(None, Probing::Never, now);
    assert_eq!(once.endpoint().provider.name, "b");
    assert_eq!(world.begin(now).endpoint().provider.name, "a");
}

#[test]
fn the_only_provider_is_asked_whatever_is_known_of_it() {
    let world = World::new(&[("a", 1)]);
    let now = clock::instant();
    for fails in [Does::Answer(500), Does::Refuse, Does::Fall, Does::Answer(429)] {
        for _ in 0..20 {
            assert!(!world.run(now, |_| fails).asked.is_empty());
        }
        assert_eq!(world.run(now, |_| OK).end, served_by("a"));
    }
}

#[test]
fn when_all_have_failed_the_one_that_is_due_first_is_asked() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let later = now + Duration::from_secs(1);
    for _ in 0..EJECTED_AFTER {
        // `b`, because `a` is passed over.
        world.run(later, |_| Does::Answer(500));
    }
    assert_eq!(world.begin(later).endpoint().provider.name, "a");
}

#[test]
fn state_at_a_provider_is_asked_for_there_even_if_it_fails() {
    let world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let key = StateKey::new("account", StateId::new("resp_1"));
    let at_a = ServedBy {
        provider: "a".to_owned(),
        credential: "c0".to_owned(),
    };
    let bound = || SessionHint::for_state(key, Some(at_a.clone()));
    for fails in [Does::Answer(529), Does::Refuse, Does::Fall] {
        let attempts = world.begin_as(Some(bound()), Probing::Allowed, now);
        let run = run(attempts, now, |_| fails);
        assert!(run.asked.iter().all(|name| name == "a"), "{run:?}");
    }
}

#[test]
fn a_reload_keeps_what_has_failed() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let now = clock::instant();
    world.eject("a", now);
    let resolving = ResolverSettings {
        refresh: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
    };
    let resolver = Arc::new(Resolver::new(Vec::new(), resolving));
    world.pools = Arc::new(Pools::build(&world.catalogue, &resolver, Some(&world.pools)));
    world.runtime.block_on(world.pools.update());
    assert_eq!(world.begin(now).endpoint().provider.name, "b");
    let a = world.pools.of("a").unwrap();
    assert_eq!((a.open_circuits(now).len(), a.skipped()), (1, 1));
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => Just(OK),
        1 => Just(Does::Refuse),
        1 => Just(Does::Fall),
        4 => prop::sample::select(vec![400, 401, 429, 500, 503, 529]).prop_map(Does::Answer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_is_refused_while_one_provider_works(
        steps in proptest::collection::vec((does(), does(), 0_u64..3_000), 1..200),
    ) {
        let world = World::new(&[("a", 2), ("b", 1), ("c", 1)]);
        let mut now = clock::instant();
        for (a, b, pass) in steps {
            let run = world.run(now, |name| match name { "a" => a, "b" => b, _ => OK });
            // 400 speaks of the request: any provider may say it.
            let (_, status) = run.end.unwrap();
            prop_assert!(matches!(status, 200 | 400), "{status}");
            prop_assert!(run.asked.len() <= 2 + 2 + 1 + 1, "{:?}", run.asked);
            now += Duration::from_millis(pass);
        }
    }
}

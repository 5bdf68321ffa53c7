//! The resolver against lookups made up here.

use std::io;

use parking_lot::Mutex;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(10);

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn quick() -> ResolverSettings {
    ResolverSettings {
        refresh: Duration::from_millis(2),
        timeout: Duration::from_millis(200),
    }
}

/// Answers from a table that a test can change; a missing name is an error, an empty list is an empty answer.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<HashMap<String, Vec<SocketAddr>>>>,
    asked: Arc<AtomicU64>,
    hang: bool,
}

impl Script {
    fn say(&self, host: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| at(text)).collect();
        self.answers.lock().insert(host.to_owned(), addresses);
    }

    fn fail(&self, host: &str) {
        self.answers.lock().remove(host);
    }
}

#[async_trait]
impl HostLookup for Script {
    async fn lookup(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.hang {
            std::future::pending::<()>().await;
        }
        let answers = self.answers.lock();
        answers
            .get(host)
            .cloned()
            .ok_or_else(|| io::Error::other("no such host"))
    }
}

fn resolver(hosts: &[(&str, u16)], script: &Script, settings: ResolverSettings) -> Arc<Resolver> {
    let hosts = hosts.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
    Arc::new(Resolver::with_lookup(hosts, settings, Box::new(script.clone())))
}

fn nth(resolver: &Resolver, host: &str, port: u16, at: usize) -> Option<SocketAddr> {
    resolver.addresses(host, port)?.get(at).copied()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_MAX, poll).await.is_ok(), "never: {what}");
}

#[test]
fn literals_are_answered_without_a_task() {
    let resolver = resolver(&[], &Script::default(), quick());
    assert_eq!(nth(&resolver, "127.0.0.1", 80, 0), Some(at("127.0.0.1:80")));
    assert_eq!(nth(&resolver, "[::1]", 443, 0), Some(at("[::1]:443")));
    assert_eq!(
        resolver.addresses("::1", 443).as_deref(),
        Some([at("[::1]:443")].as_slice())
    );
    assert_eq!(resolver.addresses("api.example.com", 443), None);
}

#[test]
fn retries_double_up_to_the_refresh() {
    let refresh = Duration::from_secs(30);
    let waits: Vec<u64> = (0..8).map(|failures| wait(failures, refresh).as_secs()).collect();
    assert_eq!(waits, [30, 1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(wait(u32::MAX, refresh), refresh);
    assert_eq!(wait(1, Duration::from_millis(5)), Duration::from_millis(5));
}

#[test]
fn the_family_the_system_prefers_comes_first_and_the_other_is_kept() {
    let mixed = [
        at("10.0.0.1:1"),
        at("[2001:db8::1]:1"),
        at("10.0.0.2:1"),
        at("10.0.0.1:1"),
    ];
    let found = families(&mixed);
    assert_eq!(*found.preferred, [at("10.0.0.1:1"), at("10.0.0.2:1")]);
    assert_eq!(*found.other, [at("[2001:db8::1]:1")]);
    let found = families(&mixed[1..]);
    assert_eq!(*found.preferred, [at("[2001:db8::1]:1")]);
    assert_eq!(*found.other, [at("10.0.0.2:1"), at("10.0.0.1:1")]);
    let many: Vec<SocketAddr> = (1..=200).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
    assert_eq!(families(&many).preferred.len(), ADDRESSES_MAX);
}

#[tokio::test]
async fn each_address_has_one_of_the_other_family() {
    let script = Script::default();
    script.say(
        "a.example",
        &["[2001:db8::1]:443", "10.0.0.1:443", "[2001:db8::2]:443", "10.0.0.2:443"],
    );
    script.say("b.example", &["10.0.0.3:443"]);
    let resolver = resolver(&[("a.example", 443), ("b.example", 443)], &script, quick());
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;
    let other = |host: &str, address: &str| resolver.other_family(host, 443, at(address));
    assert_eq!(other("a.example", "[2001:db8::1]:443"), Some(at("10.0.0.1:443")));
    assert_eq!(other("a.example", "[2001:db8::2]:443"), Some(at("10.0.0.2:443")));
    assert_eq!(other("a.example", "10.0.0.1:443"), None, "it is the other one itself");
    assert_eq!(other("b.example", "10.0.0.3:443"), None);
    assert_eq!(other("10.0.0.3", "10.0.0.3:443"), None);
    // The name gains a family.
    script.say("b.example", &["10.0.0.3:443", "[2001:db8::3]:443"]);
    until("the new family", || {
        resolver.other_family("b.example", 443, at("10.0.0.3:443")) == Some(at("[2001:db8::3]:443"))
    })
    .await;
}

#[tokio::test]
async fn names_are_resolved_at_start() {
    let script = Script::default();
    script.say("a.example", &["10.0.0.1:443", "10.0.0.2:443"]);
    let resolver = resolver(&[("a.example", 443), ("gone.example", 443)], &script, quick());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;
    assert_eq!(nth(&resolver, "a.example", 443, 0), Some(at("10.0.0.1:443")));
    assert_eq!(nth(&resolver, "a.example", 443, 1), Some(at("10.0.0.2:443")));
    assert_eq!(nth(&resolver, "a.example", 443, 2), None);
    assert_eq!(nth(&resolver, "a.example", 80, 0), None, "another port is another name");
    assert_eq!(nth(&resolver, "gone.example", 443, 0), None);
    stop.send_replace(true);
    tokio::time::timeout(WAIT_MAX, task)
        .await
        .expect("stops")
        .expect("no panic");
}

#[tokio::test]
async fn a_failed_or_empty_refresh_keeps_the_last_good_answer() {
    let script = Script::default();
    script.say("a.example", &["10.0.0.1:443"]);
    let resolver = resolver(&[("a.example", 443)], &script, quick());
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;

    script.fail("a.example");
    until("a failure counted", || {
        resolver.failures().iter().any(|(_, count)| *count >= 2)
    })
    .await;
    assert_eq!(nth(&resolver, "a.example", 443, 0), Some(at("10.0.0.1:443")));

    script.say("a.example", &[]);
    let before = resolver.failures()[0].1;
    until("an empty answer counted", || resolver.failures()[0].1 > before + 1).await;
    assert_eq!(nth(&resolver, "a.example", 443, 0), Some(at("10.0.0.1:443")));

    script.say("a.example", &["10.0.0.9:443"]);
    until("the new address", || {
        nth(&resolver, "a.example", 443, 0) == Some(at("10.0.0.9:443"))
    })
    .await;
}

#[tokio::test]
async fn a_lookup_that_hangs_is_cut_off_and_counted() {
    let script = Script {
        hang: true,
        ..Script::default()
    };
    let settings = ResolverSettings {
        refresh: Duration::from_secs(60),
        timeout: Duration::from_millis(5),
    };
    let resolver = resolver(&[("slow.example", 443), ("slower.example", 443)], &script, settings);
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&resolver).run(stopped));
    tokio::time::timeout(WAIT_MAX, resolver.first_pass())
        .await
        .expect("bounded");
    let mut failures = resolver.failures();
    failures.sort();
    assert_eq!(
        failures,
        [("slow.example".to_owned(), 1), ("slower.example".to_owned(), 1)]
    );
    assert_eq!(script.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_reload_resolves_new_names_and_forgets_old_ones() {
    let script = Script::default();
    script.say("a.example", &["10.0.0.1:443"]);
    script.say("b.example", &["10.0.0.2:443"]);
    script.say("c.example", &["10.0.0.3:443"]);
    let settings = ResolverSettings {
        refresh: Duration::from_secs(60),
        ..quick()
    };
    let resolver = resolver(&[("a.example", 443), ("b.example", 443)], &script, settings);
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;

    script.fail("b.example");
    resolver.set_hosts(vec![("b.example".to_owned(), 443), ("c.example".to_owned(), 443)]);
    assert_eq!(nth(&resolver, "a.example", 443, 0), None);
    assert_eq!(
        nth(&resolver, "b.example", 443, 0),
        Some(at("10.0.0.2:443")),
        "kept through the reload"
    );
    until("the new name", || {
        nth(&resolver, "c.example", 443, 0) == Some(at("10.0.0.3:443"))
    })
    .await;
}

#[tokio::test]
async fn the_system_knows_localhost() {
    let hosts = vec![("localhost".to_owned(), 80)];
    let settings = ResolverSettings {
        refresh: Duration::from_secs(60),
        timeout: Duration::from_secs(5),
    };
    let resolver = Arc::new(Resolver::new(hosts, settings));
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;
    assert!(nth(&resolver, "localhost", 80, 0).is_some_and(|address| address.ip().is_loopback()));
}

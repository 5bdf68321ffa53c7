//! Which settings differ from those of another configuration and take effect with the next start only, each by its name.
//!
//! What was checked says whether a section differs, whatever the file's words for it are. Which of its settings make the
//! difference is found by giving the other file one changed setting at a time.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::{Config, GatewayConfig, UpstreamConfig, bodies};

impl Config {
    /// The settings that differ from `started` in what is read only at the start, by their names in the file.
    pub(crate) fn needs_restart(&self, started: &Self) -> BTreeSet<String> {
        let sections = self.sections_for_restart(started);
        if sections.is_empty() {
            return BTreeSet::new();
        }
        let (new, old) = (self.source.settings(), started.source.settings());
        let names: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
        let (mut named, mut explained) = (BTreeSet::new(), BTreeSet::new());
        for name in names.into_iter().filter(|name| new.get(*name) != old.get(*name)) {
            let mut changed = old.clone();
            match new.get(name) {
                Some(value) => changed.insert(name.clone(), value.clone()),
                None => changed.remove(name),
            };
            let differing = match started.with(&changed) {
                Some(changed) => changed.sections_for_restart(started),
                // It can change together with others only.
                None => name
                    .split('.')
                    .take(1)
                    .filter_map(|section| sections.get(section))
                    .copied()
                    .collect(),
            };
            if !differing.is_disjoint(&sections) {
                named.insert(name.clone());
            }
            explained.extend(differing);
        }
        named.extend(sections.difference(&explained).map(|section| (*section).to_owned()));
        named
    }

    /// What would be read with these settings in the file.
    fn with(&self, settings: &BTreeMap<String, Value>) -> Option<Self> {
        let text: String = settings
            .iter()
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect();
        Self::parse(&self.source.file, &text, &self.source.folder).ok()
    }

    /// The sections that differ from `before` in what is read only at the start.
    fn sections_for_restart(&self, before: &Self) -> BTreeSet<&'static str> {
        let (new, old) = (&self.gateway, &before.gateway);
        let at_start = |bodies: &bodies::BodiesConfig| {
            let of_one = (bodies.key_bytes_max, bodies.address_bytes_max);
            (bodies.budget_bytes, of_one, bodies.work_key_percent)
        };
        let listener = |config: &GatewayConfig| {
            (
                (config.listen, config.threads),
                at_start(&config.bodies),
                (config.drain, config.key_prefix.clone()),
                config.proxy_protocol_from.clone(),
                (config.tls.tls.is_on(), config.tls.redirect_listen),
            )
        };
        let places = |config: &Self| {
            let connections = &config.connections;
            let heads = (connections.heads.bytes_max, connections.heads.address_bytes_max);
            (connections.max, connections.per_address_max, heads)
        };
        let pool = |config: &UpstreamConfig| {
            (
                (config.pool_size, config.client_gone_finish_max),
                config.ca_file.clone(),
                (config.resolve, config.resolve_timeout),
            )
        };
        [
            ("gateway", listener(new) != listener(old)),
            ("connections", places(self) != places(before)),
            ("own_usage", self.own_usage != before.own_usage),
            ("upstream", pool(&self.upstream) != pool(&before.upstream)),
            ("store", self.store != before.store),
            ("key_cache", self.key_cache != before.key_cache),
            ("leases", self.leases != before.leases),
            ("notices", self.notices != before.notices),
            ("journal", self.journal != before.journal),
            ("ops", self.ops != before.ops),
            ("stability", self.stability.at_start() != before.stability.at_start()),
            ("admin", self.admin.at_start() != before.admin.at_start()),
            ("console", self.console.at_start() != before.console.at_start()),
            ("sign_in", self.sign_in != before.sign_in),
            ("log", self.log != before.log),
        ]
        .into_iter()
        .filter_map(|(section, differs)| differs.then_some(section))
        .collect()
    }
}

//! The questions of `weir check` to the servers, in addition to those of every connection.

use super::RedisStore;

/// A setting of the servers that works, but for which another value is better.
struct AdvisedSetting {
    name: &'static str,
    unfit: &'static str,
    /// Whether it matters only to the nodes of a cluster.
    is_for_clusters: bool,
    advice: &'static str,
}

const SETTINGS: [AdvisedSetting; 2] = [
    AdvisedSetting {
        name: "list-compress-depth",
        unfit: "0",
        is_for_clusters: false,
        advice: "redis keeps the rows of the log uncompressed, in about three times the memory: set list-compress-depth to 1",
    },
    AdvisedSetting {
        name: "cluster-require-full-coverage",
        unfit: "yes",
        is_for_clusters: true,
        advice: "all masters of the redis cluster stop while one of them is down: set cluster-require-full-coverage to no",
    },
];

impl RedisStore {
    /// Whether all masters are connected, and sentinels heard from.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// The settings to change at connected masters, as far as they tell: weir does not need the right to read settings.
    pub async fn advice(&self) -> Vec<&'static str> {
        let mut advice = Vec::new();
        for setting in &SETTINGS {
            if setting.is_for_clusters && !self.link.is_cluster() {
                continue;
            }
            let values = self.link.setting(setting.name).await;
            if values.iter().any(|value| value == setting.unfit) {
                advice.push(setting.advice);
            }
        }
        advice
    }
}

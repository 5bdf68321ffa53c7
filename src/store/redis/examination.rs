//! What `weir check` asks the servers besides what every connection sees.

use super::RedisStore;

/// A setting of the servers that serves, and that another value suits better.
struct Setting {
    name: &'static str,
    unfit: &'static str,
    /// It means something to the nodes of a cluster alone.
    of_clusters: bool,
    advice: &'static str,
}

const SETTINGS: [Setting; 2] = [
    Setting {
        name: "list-compress-depth",
        unfit: "0",
        of_clusters: false,
        advice: "redis keeps the rows of the log uncompressed, in about three times the memory: set list-compress-depth to 1",
    },
    Setting {
        name: "cluster-require-full-coverage",
        unfit: "yes",
        of_clusters: true,
        advice: "all masters of the redis cluster stop while one of them is away: set cluster-require-full-coverage to no",
    },
];

impl RedisStore {
    /// Whether all its masters are connected, and sentinels heard.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// What to set otherwise at a master that is connected, as far as they tell. The right to see that is none that weir needs.
    pub async fn advice(&self) -> Vec<&'static str> {
        let mut advice = Vec::new();
        for setting in &SETTINGS {
            if setting.of_clusters && !self.link.is_cluster() {
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

//! What `weir check` asks the servers besides what every connection sees.

use super::RedisStore;

/// What is said of servers that keep the rows of the log as they are.
pub(crate) const UNCOMPRESSED_ROWS: &str =
    "redis keeps the rows of the log uncompressed, in about three times the memory: set list-compress-depth to 1";
const COMPRESSION: &str = "list-compress-depth";

impl RedisStore {
    /// Whether all its masters are connected, and sentinels heard.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Whether a master is known to keep lists as they are. The right to see that is none that weir needs.
    pub async fn keeps_rows_uncompressed(&self) -> bool {
        let depths = self.link.setting(COMPRESSION).await;
        depths.iter().any(|depth| depth == "0")
    }
}

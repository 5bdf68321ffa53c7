//! The edge: sockets, HTTP, pace.

use tokio::net::TcpListener;

use super::{SampleProviderError, Settings};

/// Serves on `listener` until `shutdown` resolves.
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), SampleProviderError> {
    let _ = (listener, settings);
    shutdown.await;
    Ok(())
}

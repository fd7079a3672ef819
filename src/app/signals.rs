//! SIGTERM and SIGINT: the first begins the drain, the second ends it now.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Stop;

/// Listens until the process ends.
pub(super) async fn stop(stop: Stop) {
    let (terminate, interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (terminate, interrupt) => {
            let error = terminate.err().or_else(|| interrupt.err());
            return tracing::error!(?error, "cannot listen to signals");
        }
    };
    let mut signals = [terminate, interrupt];
    next(&mut signals).await;
    stop.gently();
    next(&mut signals).await;
    tracing::warn!("second signal: closing all connections");
    stop.now();
}

async fn next([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

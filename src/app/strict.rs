//! The start-up check of the allowlist, once store and manifest are loaded: unknown names stop a strict start, at once or
//! after a wait in which they may still be registered.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Error, log, registered};
use crate::{
    admin::{Pending, Readiness},
    catalog::Reader,
    config::Settings,
};

/// A start that waits for the allowlist's names.
#[derive(Debug)]
pub(super) struct Waiting {
    patience: Duration,
    pending: Pending,
}

/// Checks the allowlist. With a wait set, and names missing in strict mode, the server goes up but is not ready.
///
/// # Errors
/// Strict mode, unknown names, and no wait.
pub(super) fn begin(
    reader: &Reader,
    settings: &Settings,
    readiness: &Readiness,
) -> Result<Option<Waiting>, Error> {
    let tools = registered(reader);
    let missing = reader.allowlist().missing(&tools);
    if reader.allowlist().is_ci() && !missing.is_empty() && !settings.strict_wait.is_zero() {
        tracing::info!(?missing, "waiting for the allowlist's tools to be registered");
        return Ok(Some(Waiting { patience: settings.strict_wait, pending: readiness.pending("allowlist") }));
    }
    check(reader)?;
    Ok(None)
}

impl Waiting {
    /// Waits until all names exist.
    ///
    /// # Errors
    /// The time is up.
    pub(super) async fn run(self, reader: Reader) -> Result<(), Error> {
        let Self { patience, pending } = self;
        let deadline = Instant::now() + patience;
        let mut revisions = reader.revisions();
        loop {
            revisions.borrow_and_update();
            let missing = reader.allowlist().missing(&registered(&reader));
            if missing.is_empty() {
                check(&reader)?;
                drop(pending);
                return Ok(());
            }
            if !matches!(timeout_at(deadline, revisions.changed()).await, Ok(Ok(()))) {
                return Err(Error::Configuration(reader.allowlist().ci_error(&missing, Some(patience))));
            }
        }
    }
}

/// Logs what the allowlist does, with the diagnostics block.
fn check(reader: &Reader) -> Result<(), Error> {
    let tools = registered(reader);
    let (lines, result) = reader.allowlist().startup_check(&tools);
    log(&lines);
    result.map_err(Error::Configuration)
}

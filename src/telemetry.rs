//! The log: one subscriber, to stderr, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{config::Log, core::name::quote};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parses a filter: a level, or directives like `info,toolpulse::prober=debug`.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    // A misspelt level would be taken for a target, and switch the log off.
    let bare = |d: &str| !d.contains(['=', '[']) && !LEVELS.contains(&d.to_ascii_lowercase().as_str());
    if let Some(wrong) = text.split(',').map(str::trim).find(|d| bare(d)) {
        return Err(format!(
            "{} is not a level; use {}, or TARGET=LEVEL, separated by commas",
            quote(wrong),
            LEVELS.join(", ")
        ));
    }
    EnvFilter::builder().parse(text).map_err(|e| format!("{} is not a filter: {e}", quote(text)))
}

/// Lines that wait for a slow reader of stderr. Beyond that they are lost: a log must never hold up the server.
const MAX_WAITING_LINES: usize = 10_000;

/// Sends the log of the whole process to stderr, from a thread of its own. What waits when the guard is dropped is written
/// before, unless nobody reads.
///
/// # Errors
/// The filter is wrong, or the log was set up before.
pub fn init(log: &Log) -> Result<WorkerGuard, String> {
    let filter = filter(&log.filter)?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("log")
        .finish(io::stderr());
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(writer);
    let done = if log.json {
        registry.with(layer.json().flatten_event(true)).try_init()
    } else {
        registry.with(layer.with_ansi(io::stderr().is_terminal())).try_init()
    };
    done.map_err(|e| e.to_string())?;
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn filters() {
        for good in ["info", "off", "WARN", "info,toolpulse::prober=debug", "toolpulse[{tool=x}]=trace"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for (bad, part) in [
            ("inof", "'inof' is not a level; use off"),
            ("", "'' is not a level"),
            ("info,", "'' is not a level"),
            ("toolpulse=loud", "'toolpulse=loud' is not a filter"),
            ("debug,prober", "'prober' is not a level"),
        ] {
            let error = filter(bad).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}

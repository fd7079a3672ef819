//! How a command fails: one line on stderr, and an exit code.

use std::io;

use tonic::Status;
use tonic_types::StatusExt;

use crate::{config, core::name::clean, grpc_code::code_name};

/// Longest error line, in characters.
const MAX_LINE: usize = 2_000;

/// Why a command ends with another code than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It did not work: 1.
    Failed(String),
    /// The command line or the configuration is wrong: 2.
    Usage(String),
    /// The server is not healthy, or can't be reached: 3 (`healthcheck` only).
    Unhealthy(String),
    /// What there is to say is said: the code.
    Silent(u8),
}

impl Failure {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Unhealthy(_) => 3,
            Self::Silent(code) => *code,
        }
    }

    /// The line for stderr, if there is one.
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Failed(text) | Self::Usage(text) | Self::Unhealthy(text) => {
                Some(format!("error: {}", one_line(text)))
            }
            Self::Silent(_) => None,
        }
    }

    /// A failed call.
    pub fn call(status: &Status) -> Self {
        Self::Failed(describe(status))
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// A failed write of the output. A reader that has seen enough (`| head`) is no failure.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Silent(0),
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }
}

/// A failed call in one line: what is wrong, field by field, then code and reason for those who look them up.
pub(super) fn describe(status: &Status) -> String {
    let details = status.get_error_details();
    // Where the connection broke, the reason is in the causes.
    let mut text = std::error::Error::source(status).map_or_else(|| status.message().to_owned(), chain);
    for violation in details.bad_request().map_or(&[][..], |b| &b.field_violations) {
        // The server's message tells most of them already.
        if !text.contains(&violation.description) {
            let separator = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!("{separator}{}: {}", violation.field, violation.description));
        }
    }
    if text.is_empty() {
        text = status.code().description().to_lowercase();
    }
    let mut notes = vec![code_name(status.code()).to_owned()];
    notes.extend(details.error_info().map(|info| info.reason.clone()).filter(|reason| !reason.is_empty()));
    if let Some(delay) = details.retry_info().and_then(|r| r.retry_delay) {
        notes.push(format!("retry in {}", humantime::format_duration(delay)));
    }
    format!("{} ({})", one_line(&text), notes.join(", "))
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

fn one_line(text: &str) -> String {
    clean(&text.replace(['\n', '\t'], " "), MAX_LINE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use tonic::Code;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_failed_call_is_one_line() {
        let plain = Status::not_found("no tool 'x' in namespace 'default'");
        assert_eq!(describe(&plain), "no tool 'x' in namespace 'default' (NOT_FOUND)");

        let mut details = ErrorDetails::with_error_info("INVALID", "toolpulse.dev", []);
        details.add_bad_request_violation("tool.name", "must be\nshort");
        details.add_bad_request_violation("tool.ttl", "is negative");
        let rich = Status::with_error_details(Code::InvalidArgument, "tool.ttl: is negative", details);
        assert_eq!(
            describe(&rich),
            "tool.ttl: is negative; tool.name: must be short (INVALID_ARGUMENT, INVALID)"
        );

        let mut details = ErrorDetails::with_retry_info(Some(Duration::from_millis(500)));
        details.set_error_info("SETTLING", "toolpulse.dev", []);
        let retry = Status::with_error_details(Code::Unavailable, "settling\u{1b}[2J", details);
        assert_eq!(describe(&retry), "settling[2J (UNAVAILABLE, SETTLING, retry in 500ms)");

        assert_eq!(describe(&Status::internal("")), "internal error (INTERNAL)");
    }

    #[test]
    fn exit_codes() {
        let text = || "x".to_owned();
        for (failure, code, line) in [
            (Failure::Failed(text()), 1, Some("error: x")),
            (Failure::Usage(text()), 2, Some("error: x")),
            (Failure::Unhealthy(text()), 3, Some("error: x")),
            (Failure::Silent(1), 1, None),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), 0, None),
            (config::Error::new("x").into(), 2, Some("error: x")),
        ] {
            assert_eq!((failure.exit_code(), failure.line().as_deref()), (code, line));
        }
    }
}

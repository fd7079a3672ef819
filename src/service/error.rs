//! What clients see when something is refused: one exhaustive match from [`Refusal`] to a gRPC status with details.
//!
//! Everything here is bounded: a status travels in HTTP/2 trailers, and clients drop a reply whose trailers exceed 8 KiB,
//! error and all.

use std::{collections::HashMap, time::Duration};

use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::{
    core::refusal::{Fault, Refusal},
    serve,
};

/// The `domain` of every ErrorInfo.
pub const DOMAIN: &str = "toolpulse.dev";

/// Wrong fields that one reply names. The rest is counted.
const MAX_VIOLATIONS: usize = 50;

/// Bytes of all the wrong fields that one reply names. In base64 they are a third more.
const MAX_VIOLATIONS_BYTES: usize = 3 * 1024;

/// Bytes of the status message, percent-encoded. It travels twice: as `grpc-message` and inside of the details.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Bytes of one value: a name, a path, a text of somebody else's.
const MAX_VALUE_BYTES: usize = 256;

/// When to try again after the store refused a write: disks heal slower than networks, but a lock may be gone soon.
const STORE_RETRY: Duration = Duration::from_secs(2);

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        refusal_to_status(&refusal)
    }
}

/// The status of a refused call.
pub fn refusal_to_status(refusal: &Refusal) -> Status {
    told_to_status(refusal, tell(refusal))
}

/// The status of a stream that ends because the server drains, where its client was told already how long to wait.
pub(crate) fn draining(retry_after: Duration) -> Status {
    let refusal = Refusal::Draining;
    told_to_status(&refusal, Told { retry_after: Some(retry_after), ..tell(&refusal) })
}

fn told_to_status(refusal: &Refusal, told: Told) -> Status {
    let Told { code, reason, metadata, retry_after } = told;
    let mut details = ErrorDetails::new();
    let mut metadata = bounded(metadata);
    let mut message = String::new();
    if let Refusal::Invalid(faults) = refusal {
        let named = violations(faults);
        let omitted = faults.len() - named.len();
        message = summary(faults);
        if omitted > 0 {
            metadata.insert("omitted_violations".into(), omitted.to_string());
        }
        details.set_bad_request(named);
    }
    if message.is_empty() {
        message = refusal.to_string();
    }
    details.set_error_info(reason, DOMAIN, metadata);
    if retry_after.is_some() {
        details.set_retry_info(retry_after);
    }
    Status::with_error_details(code, shorten(&message, MAX_MESSAGE_BYTES), details)
}

/// The same as a message, for the results of a batch.
pub fn refusal_to_proto(refusal: &Refusal) -> tonic_types::Status {
    let status = refusal_to_status(refusal);
    // The details of a status are this very message; they were encoded a moment ago.
    tonic_types::Status::decode(status.details()).unwrap_or_else(|_| tonic_types::Status {
        code: status.code().into(),
        message: status.message().to_owned(),
        details: Vec::new(),
    })
}

/// A status for a reason that is not a [`Refusal`], with its ErrorInfo.
pub(crate) fn status<const N: usize>(
    code: Code,
    reason: &str,
    message: impl Into<String>,
    metadata: [(&'static str, String); N],
) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, bounded(metadata.into()));
    Status::with_error_details(code, shorten(&message.into(), MAX_MESSAGE_BYTES), details)
}

/// A value of somebody else's, short enough to be quoted in a message.
pub(crate) fn cut(value: &str) -> String {
    shorten(value, MAX_VALUE_BYTES)
}

struct Told {
    code: Code,
    reason: &'static str,
    metadata: Vec<(&'static str, String)>,
    retry_after: Option<Duration>,
}

/// Code, reason and values of each refusal.
fn tell(refusal: &Refusal) -> Told {
    let told = |code, reason, metadata| Told { code, reason, metadata, retry_after: None };
    let retry = |reason, metadata, after| Told {
        code: Code::Unavailable,
        reason,
        metadata,
        retry_after: Some(after),
    };
    match refusal {
        Refusal::Invalid(_) => told(Code::InvalidArgument, "INVALID_FIELDS", vec![]),
        Refusal::ToolNotFound { namespace, name } => told(
            Code::NotFound,
            "TOOL_NOT_FOUND",
            vec![("namespace", namespace.clone()), ("name", name.clone())],
        ),
        Refusal::PolicyNotFound { namespace, agent_id } => told(
            Code::NotFound,
            "POLICY_NOT_FOUND",
            vec![("namespace", namespace.clone()), ("agent_id", agent_id.clone())],
        ),
        Refusal::EtagMismatch { agent_id, given, current } => told(
            Code::Aborted,
            "ETAG_MISMATCH",
            vec![("agent_id", agent_id.clone()), ("given", given.clone()), ("current", current.clone())],
        ),
        Refusal::PolicyExists { agent_id, current } => told(
            Code::AlreadyExists,
            "POLICY_EXISTS",
            vec![("agent_id", agent_id.clone()), ("current", current.clone())],
        ),
        Refusal::ProbeNotFound { name, probe, known } => told(
            Code::NotFound,
            "PROBE_NOT_FOUND",
            vec![("name", name.clone()), ("probe", probe.clone()), ("known", known.clone())],
        ),
        Refusal::AlreadyExists { name, owner, difference } => told(
            Code::AlreadyExists,
            "ALREADY_EXISTS",
            vec![("name", name.clone()), ("owner", owner.clone()), ("difference", (*difference).to_owned())],
        ),
        Refusal::OwnerMismatch { name, owner, caller } => told(
            Code::PermissionDenied,
            "OWNER_MISMATCH",
            vec![("name", name.clone()), ("owner", owner.clone()), ("caller", caller.clone())],
        ),
        Refusal::DeclaredTool { name } => {
            told(Code::PermissionDenied, "DECLARED_TOOL", vec![("name", name.clone())])
        }
        Refusal::BatchRejected => told(Code::Aborted, "BATCH_REJECTED", vec![]),
        Refusal::StaleGeneration { name, given, current } => told(
            Code::FailedPrecondition,
            "STALE_GENERATION",
            vec![("name", name.clone()), ("given", given.to_string()), ("current", current.to_string())],
        ),
        Refusal::NotAReportProbe { name, probe, kind } => told(
            Code::FailedPrecondition,
            "NOT_A_REPORT_PROBE",
            vec![("name", name.clone()), ("probe", probe.clone()), ("kind", (*kind).to_owned())],
        ),
        Refusal::NoProbes { name } => {
            told(Code::FailedPrecondition, "NO_PROBES", vec![("name", name.clone())])
        }
        Refusal::ToolChanged { name } => told(Code::Aborted, "TOOL_CHANGED", vec![("name", name.clone())]),
        Refusal::Exhausted { reason, what, limit } => {
            told(Code::ResourceExhausted, reason, vec![("what", what.clone()), ("limit", limit.to_string())])
        }
        Refusal::TooManyWatches { limit, .. } => Told {
            code: Code::ResourceExhausted,
            ..retry("TOO_MANY_WATCHES", vec![("limit", limit.to_string())], serve::retry_after())
        },
        Refusal::TooManyProbes { limit } => Told {
            code: Code::ResourceExhausted,
            ..retry("TOO_MANY_PROBES", vec![("limit", limit.to_string())], serve::retry_after())
        },
        Refusal::FormatLossy { format, count, first } => told(
            Code::FailedPrecondition,
            "FORMAT_LOSSY",
            vec![("format", (*format).to_owned()), ("count", count.to_string()), ("first", first.clone())],
        ),
        Refusal::Settling { retry_after } => retry("SETTLING", vec![], *retry_after),
        Refusal::StoreUnavailable { message } => {
            retry("STORE_UNAVAILABLE", vec![("store", message.clone())], STORE_RETRY)
        }
        Refusal::Draining => retry("DRAINING", vec![], serve::retry_after()),
        Refusal::Superseded { gateway_id } => {
            told(Code::Aborted, "SUPERSEDED", vec![("gateway_id", gateway_id.clone())])
        }
    }
}

fn bounded(metadata: Vec<(&'static str, String)>) -> HashMap<String, String> {
    metadata.into_iter().map(|(key, value)| (key.to_owned(), cut(&value))).collect()
}

fn violations(faults: &[Fault]) -> Vec<FieldViolation> {
    let mut room = MAX_VIOLATIONS_BYTES;
    let mut named = Vec::new();
    for fault in faults.iter().take(MAX_VIOLATIONS) {
        let (field, message) = (cut(&fault.field), cut(&fault.message));
        let Some(left) = room.checked_sub(field.len() + message.len()) else { break };
        room = left;
        named.push(FieldViolation::new(field, message));
    }
    named
}

/// The first faults in words, and how many more there are.
fn summary(faults: &[Fault]) -> String {
    const IN_WORDS: usize = 3;
    let mut parts: Vec<String> = faults
        .iter()
        .take(IN_WORDS)
        .map(|f| {
            if f.field.is_empty() {
                cut(&f.message)
            } else {
                format!("{}: {}", cut(&f.field), cut(&f.message))
            }
        })
        .collect();
    if faults.len() > IN_WORDS {
        parts.push(format!("and {} more", faults.len() - IN_WORDS));
    }
    parts.join("; ")
}

/// `text`, ended by `...` where its percent-encoded form is over `max` bytes.
fn shorten(text: &str, max: usize) -> String {
    let mut room = max;
    for (at, c) in text.char_indices() {
        let cost = if matches!(c, ' '..='~') && c != '%' { 1 } else { 3 * c.len_utf8() };
        match room.checked_sub(cost) {
            Some(left) => room = left,
            None => return format!("{}...", &text[..at]),
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of grpc-java, and of older C-core clients, for all trailers together.
    const TRAILERS: usize = 8 * 1024;

    fn trailer_bytes(status: &Status) -> usize {
        let mut headers = http::HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        headers.iter().map(|(k, v)| k.as_str().len() + v.len() + 32).sum()
    }

    fn all() -> Vec<(Refusal, Code, &'static str, bool)> {
        let s = String::from;
        vec![
            (Refusal::invalid("a", "b"), Code::InvalidArgument, "INVALID_FIELDS", false),
            (
                Refusal::ToolNotFound { namespace: s("ns"), name: s("n") },
                Code::NotFound,
                "TOOL_NOT_FOUND",
                false,
            ),
            (
                Refusal::PolicyNotFound { namespace: s("ns"), agent_id: s("a") },
                Code::NotFound,
                "POLICY_NOT_FOUND",
                false,
            ),
            (
                Refusal::EtagMismatch { agent_id: s("a"), given: s("1"), current: s("2") },
                Code::Aborted,
                "ETAG_MISMATCH",
                false,
            ),
            (
                Refusal::PolicyExists { agent_id: s("a"), current: s("2") },
                Code::AlreadyExists,
                "POLICY_EXISTS",
                false,
            ),
            (
                Refusal::ProbeNotFound { name: s("n"), probe: s("p"), known: s("q") },
                Code::NotFound,
                "PROBE_NOT_FOUND",
                false,
            ),
            (
                Refusal::AlreadyExists { name: s("n"), owner: s("o"), difference: "a different spec" },
                Code::AlreadyExists,
                "ALREADY_EXISTS",
                false,
            ),
            (
                Refusal::OwnerMismatch { name: s("n"), owner: s("o"), caller: s("c") },
                Code::PermissionDenied,
                "OWNER_MISMATCH",
                false,
            ),
            (Refusal::DeclaredTool { name: s("n") }, Code::PermissionDenied, "DECLARED_TOOL", false),
            (Refusal::BatchRejected, Code::Aborted, "BATCH_REJECTED", false),
            (
                Refusal::StaleGeneration { name: s("n"), given: 1, current: 2 },
                Code::FailedPrecondition,
                "STALE_GENERATION",
                false,
            ),
            (
                Refusal::NotAReportProbe { name: s("n"), probe: s("p"), kind: "http" },
                Code::FailedPrecondition,
                "NOT_A_REPORT_PROBE",
                false,
            ),
            (Refusal::NoProbes { name: s("n") }, Code::FailedPrecondition, "NO_PROBES", false),
            (Refusal::ToolChanged { name: s("n") }, Code::Aborted, "TOOL_CHANGED", false),
            (
                Refusal::Exhausted { reason: "TOO_MANY_TOOLS", what: s("tools"), limit: 7 },
                Code::ResourceExhausted,
                "TOO_MANY_TOOLS",
                false,
            ),
            (
                Refusal::TooManyWatches { whose: "are open", limit: 7 },
                Code::ResourceExhausted,
                "TOO_MANY_WATCHES",
                true,
            ),
            (Refusal::TooManyProbes { limit: 7 }, Code::ResourceExhausted, "TOO_MANY_PROBES", true),
            (Refusal::Settling { retry_after: Duration::from_secs(1) }, Code::Unavailable, "SETTLING", true),
            (
                Refusal::StoreUnavailable { message: s("disk full") },
                Code::Unavailable,
                "STORE_UNAVAILABLE",
                true,
            ),
            (Refusal::Draining, Code::Unavailable, "DRAINING", true),
            (Refusal::Superseded { gateway_id: s("g") }, Code::Aborted, "SUPERSEDED", false),
        ]
    }

    #[test]
    fn every_refusal_has_its_code_reason_and_details() {
        for (refusal, code, reason, retry) in all() {
            let status = refusal_to_status(&refusal);
            assert_eq!(status.code(), code, "{refusal:?}");
            assert_eq!(status.message(), refusal.to_string());
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, DOMAIN));
            assert_eq!(details.retry_info().is_some(), retry, "{refusal:?}");
            assert_eq!(details.bad_request().is_some(), reason == "INVALID_FIELDS");
            let proto = refusal_to_proto(&refusal);
            assert_eq!((proto.code, proto.message.as_str()), (i32::from(code), status.message()));
            assert!(!proto.details.is_empty());
        }
    }

    #[test]
    fn values_are_in_the_metadata() {
        let status: Status = Refusal::StaleGeneration { name: "n".into(), given: 1, current: 2 }.into();
        let metadata = status.get_error_details().error_info().unwrap().metadata.clone();
        let expected = [("name", "n"), ("given", "1"), ("current", "2")];
        assert_eq!(metadata, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn the_largest_reply_fits_the_trailers_of_every_client() {
        let texts = ["x".repeat(100_000), "é\u{1F600}%\n".repeat(20_000), "short".into()];
        for text in texts {
            let faults = vec![Fault::new(text.clone(), text.clone()); 60];
            let refusals = [
                Refusal::Invalid(faults),
                Refusal::ProbeNotFound { name: text.clone(), probe: text.clone(), known: text.clone() },
                Refusal::OwnerMismatch { name: text.clone(), owner: text.clone(), caller: text.clone() },
                Refusal::StoreUnavailable { message: text.clone() },
            ];
            for refusal in refusals {
                let bytes = trailer_bytes(&refusal_to_status(&refusal));
                assert!(bytes < TRAILERS, "{bytes}");
            }
        }
    }

    #[test]
    fn violations_that_are_left_out_are_counted() {
        let faults: Vec<Fault> = (0..120).map(|i| Fault::new(format!("f[{i}]"), "wrong")).collect();
        let status = refusal_to_status(&Refusal::Invalid(faults));
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations.len(), MAX_VIOLATIONS);
        assert_eq!(details.error_info().unwrap().metadata["omitted_violations"], "70");
        assert_eq!(status.message(), "f[0]: wrong; f[1]: wrong; f[2]: wrong; and 117 more");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, max, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "abc..."), ("éé", 6, "é..."), ("a%", 3, "a..."), ("", 0, "")]
        {
            assert_eq!(shorten(text, max), expected, "{text} {max}");
        }
    }
}

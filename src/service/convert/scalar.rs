//! Single values: durations, times, names, enums, page sizes.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use crate::{
    core::{
        name::{ANONYMOUS, MAX_OWNER, Namespace, ToolName, quote},
        refusal::Fault,
    },
    proto::v1,
    render::Format,
};

/// `ToolSpec.interval`.
pub const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);
/// `ToolSpec.timeout`.
pub const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
/// `ToolSpec.ttl` and `ToolSpec.grace`; that they exceed interval and timeout is judged where all four are known.
pub const KEEP: RangeInclusive<Duration> = Duration::from_nanos(1)..=DAY;
/// `ToolSpec.unregister_after`.
pub const UNREGISTER_AFTER: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);
/// `ReportProbeResultRequest.ttl`.
pub const REPORT_TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
/// `RegisterToolRequest.wait_for_probe`; zero does not wait.
pub const WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Size of a page where none is asked for.
const DEFAULT_PAGE: usize = 100;
/// Largest page.
const MAX_PAGE: usize = 1_000;

/// Parses a duration that must be in `range`.
///
/// # Errors
/// A fault at `field`: negative, malformed, or out of range.
pub fn duration(
    field: &str,
    given: &prost_types::Duration,
    range: RangeInclusive<Duration>,
) -> Result<Duration, Fault> {
    let fault = |message: String| Err(Fault::new(field, message));
    let (secs, nanos) = match (u64::try_from(given.seconds), u32::try_from(given.nanos)) {
        (Ok(_), Ok(nanos)) if nanos >= 1_000_000_000 => {
            return fault(format!("is malformed: nanos is {nanos}; it must be 0 to 999999999"));
        }
        (Ok(secs), Ok(nanos)) => (secs, nanos),
        (Ok(secs), Err(_)) if secs > 0 => {
            return fault(format!("is malformed: nanos is {}; it must be 0 to 999999999", given.nanos));
        }
        _ => return fault("must be positive".to_owned()),
    };
    let value = Duration::new(secs, nanos);
    let (min, max) = (*range.start(), *range.end());
    if range.contains(&value) {
        Ok(value)
    } else if value.is_zero() {
        fault("must be positive".to_owned())
    } else {
        let bounds = if min <= *KEEP.start() {
            format!("at most {}", show(max))
        } else {
            format!("from {} to {}", show(min), show(max))
        };
        fault(format!("is {}; it must be {bounds}", show(value)))
    }
}

fn show(d: Duration) -> String {
    let secs = d.as_secs();
    match (secs, d.subsec_nanos()) {
        // In the words of the contract; humantime would call it a day.
        (86_400, 0) => "24h".to_owned(),
        // Far beyond every range; humantime would count years.
        (secs, _) if secs > 86_400 => format!("{secs}s"),
        _ => humantime::format_duration(d).to_string(),
    }
}

/// A duration on the wire.
pub fn to_proto_duration(d: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(d.subsec_nanos()).unwrap_or_default(),
    }
}

/// A wall time on the wire.
pub fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    time.into()
}

/// Parses the field `namespace`; an empty text is the default one.
///
/// # Errors
/// A fault at `namespace`.
pub fn namespace(text: &str) -> Result<Namespace, Fault> {
    Namespace::parse(text).map_err(|message| Fault::new("namespace", message))
}

/// Parses a tool's name.
///
/// # Errors
/// A fault at `field`.
pub fn tool_name(field: &str, text: &str) -> Result<ToolName, Fault> {
    ToolName::parse(text).map_err(|message| Fault::new(field, message))
}

/// Parses the field `owner`; an empty text is the anonymous one.
///
/// # Errors
/// A fault at `owner`.
pub fn owner(text: &str) -> Result<String, Fault> {
    let count = text.chars().count();
    if count > MAX_OWNER {
        Err(Fault::new("owner", format!("has {count} characters; at most {MAX_OWNER} are allowed")))
    } else if text.chars().any(char::is_control) {
        Err(Fault::new("owner", format!("{} must not contain control characters", quote(text))))
    } else if !text.is_empty() && text.trim().is_empty() {
        Err(Fault::new("owner", "is blank; give a name, or leave it out"))
    } else if text.is_empty() {
        Ok(ANONYMOUS.to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// A wire enum, whose every value is known by its number.
pub(super) trait WireEnum: TryFrom<i32> {
    /// Its name in the proto, for messages.
    const NAME: &'static str;
}

impl WireEnum for v1::HttpMethod {
    const NAME: &'static str = "HttpMethod";
}

impl WireEnum for v1::Verdict {
    const NAME: &'static str = "Verdict";
}

impl WireEnum for v1::ProbeOutcome {
    const NAME: &'static str = "ProbeOutcome";
}

impl WireEnum for v1::SchemaFormat {
    const NAME: &'static str = "SchemaFormat";
}

impl WireEnum for v1::Visibility {
    const NAME: &'static str = "Visibility";
}

/// An enum value; an unknown one is never taken for the default.
pub(super) fn known<E: WireEnum>(field: &str, value: i32) -> Result<E, Fault> {
    E::try_from(value).map_err(|_| Fault::new(field, format!("{value} is not a value of {}", E::NAME)))
}

/// Parses `ListToolsRequest.verdict`: none means any.
///
/// # Errors
/// A fault at `verdict`.
pub fn verdict_filter(value: i32) -> Result<Option<v1::Verdict>, Fault> {
    let verdict = known("verdict", value)?;
    Ok((verdict != v1::Verdict::Unspecified).then_some(verdict))
}

/// Parses `ListAvailableToolsRequest.format`: unspecified means MCP.
///
/// # Errors
/// A fault at `format`.
pub fn schema_format(value: i32) -> Result<Format, Fault> {
    Ok(match known("format", value)? {
        v1::SchemaFormat::Unspecified | v1::SchemaFormat::Mcp => Format::Mcp,
        v1::SchemaFormat::OpenaiChat => Format::OpenAiChat,
        v1::SchemaFormat::OpenaiResponses => Format::OpenAiResponses,
        v1::SchemaFormat::Anthropic => Format::Anthropic,
        v1::SchemaFormat::Gemini => Format::Gemini,
        v1::SchemaFormat::GeminiOpenapi => Format::GeminiOpenApi,
        v1::SchemaFormat::Bedrock => Format::Bedrock,
    })
}

/// A format as the wire has it.
pub fn format_to_proto(format: Format) -> v1::SchemaFormat {
    match format {
        Format::Mcp => v1::SchemaFormat::Mcp,
        Format::OpenAiChat => v1::SchemaFormat::OpenaiChat,
        Format::OpenAiResponses => v1::SchemaFormat::OpenaiResponses,
        Format::Anthropic => v1::SchemaFormat::Anthropic,
        Format::Gemini => v1::SchemaFormat::Gemini,
        Format::GeminiOpenApi => v1::SchemaFormat::GeminiOpenapi,
        Format::Bedrock => v1::SchemaFormat::Bedrock,
    }
}

/// Parses `ReportProbeResultRequest.outcome`, which is required.
///
/// # Errors
/// A fault at `outcome`.
pub fn outcome(value: i32) -> Result<v1::ProbeOutcome, Fault> {
    match known("outcome", value)? {
        v1::ProbeOutcome::Unspecified => Err(Fault::new(
            "outcome",
            "is required; set PROBE_OUTCOME_PASS, PROBE_OUTCOME_NO or PROBE_OUTCOME_ERROR",
        )),
        outcome => Ok(outcome),
    }
}

/// Parses the field `page_size`: 0 is the default, too large is the largest.
///
/// # Errors
/// A fault at `page_size`.
pub fn page_size(value: i32) -> Result<usize, Fault> {
    match usize::try_from(value) {
        Ok(0) => Ok(DEFAULT_PAGE),
        Ok(size) => Ok(size.min(MAX_PAGE)),
        Err(_) => {
            Err(Fault::new("page_size", format!("is {value}; it must be 0 (for {DEFAULT_PAGE}) or more")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pb(seconds: i64, nanos: i32) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos }
    }

    #[test]
    fn durations_are_judged() {
        const MALFORMED: &str = "is malformed: nanos is";
        for (given, range, expected) in [
            (pb(1, 0), INTERVAL, Ok(Duration::from_secs(1))),
            (pb(3_600, 0), INTERVAL, Ok(Duration::from_secs(3_600))),
            (pb(0, 999_999_999), INTERVAL, Err("is 999ms 999us 999ns; it must be from 1s to 1h")),
            (pb(3_600, 1), INTERVAL, Err("is 1h 1ns; it must be from 1s to 1h")),
            (pb(0, 10_000_000), TIMEOUT, Ok(Duration::from_millis(10))),
            (pb(0, 9_000_000), TIMEOUT, Err("is 9ms; it must be from 10ms to 1m")),
            (pb(86_400, 0), KEEP, Ok(DAY)),
            (pb(86_400, 1), KEEP, Err("is 1day 1ns; it must be at most 24h")),
            (pb(0, 0), KEEP, Err("must be positive")),
            (pb(0, 0), WAIT, Ok(Duration::ZERO)),
            (pb(61, 0), WAIT, Err("is 1m 1s; it must be at most 1m")),
            (pb(-1, 0), WAIT, Err("must be positive")),
            (pb(-1, -1), WAIT, Err("must be positive")),
            (pb(0, -1), KEEP, Err("must be positive")),
            (pb(i64::MIN, i32::MIN), KEEP, Err("must be positive")),
            (pb(1, -1), KEEP, Err(MALFORMED)),
            (pb(1, 1_000_000_000), KEEP, Err(MALFORMED)),
            (pb(0, i32::MAX), WAIT, Err(MALFORMED)),
            (pb(i64::MAX, 0), KEEP, Err("is 9223372036854775807s; it must be at most 24h")),
        ] {
            let judged = duration("f", &given, range);
            match expected {
                Ok(value) => {
                    assert_eq!(judged, Ok(value));
                    assert_eq!(to_proto_duration(value), given);
                }
                Err(message) => {
                    let fault = judged.unwrap_err();
                    assert_eq!(fault.field, "f");
                    assert!(fault.message.starts_with(message), "{given:?}: {}", fault.message);
                }
            }
        }
    }

    #[test]
    fn enums_know_their_values() {
        assert_eq!(verdict_filter(0), Ok(None));
        assert_eq!(verdict_filter(2), Ok(Some(v1::Verdict::Unavailable)));
        assert_eq!(verdict_filter(9), Err(Fault::new("verdict", "9 is not a value of Verdict")));
        assert_eq!(schema_format(0), Ok(Format::Mcp));
        assert_eq!(schema_format(1), Ok(Format::Mcp));
        for format in Format::ALL {
            assert_eq!(schema_format(format_to_proto(format).into()), Ok(format));
        }
        assert_eq!(schema_format(-1), Err(Fault::new("format", "-1 is not a value of SchemaFormat")));
        assert_eq!(outcome(1), Ok(v1::ProbeOutcome::Pass));
        assert!(outcome(0).unwrap_err().message.starts_with("is required"));
        assert_eq!(outcome(4), Err(Fault::new("outcome", "4 is not a value of ProbeOutcome")));
    }

    #[test]
    fn owners_and_pages() {
        assert_eq!(owner("").as_deref(), Ok(ANONYMOUS));
        assert_eq!(owner("team-ä").as_deref(), Ok("team-ä"));
        assert!(owner(&"ä".repeat(128)).is_ok());
        assert_eq!(
            owner(&"a".repeat(129)).unwrap_err().message,
            "has 129 characters; at most 128 are allowed"
        );
        assert_eq!(owner("a\nb").unwrap_err().message, "'a\\nb' must not contain control characters");
        for (given, size) in [(0, 100), (1, 1), (1_000, 1_000), (1_001, 1_000), (i32::MAX, 1_000)] {
            assert_eq!(page_size(given), Ok(size));
        }
        assert_eq!(page_size(-1).unwrap_err().field, "page_size");
    }
}

//! A call's own deadline, as the client sent it.

use std::time::Duration;

use http::HeaderMap;
use tonic::metadata::MetadataMap;

const HEADER: &str = "grpc-timeout";

/// The protocol's own bound; with it no unit can overflow.
const MAX_DIGITS: usize = 8;

/// How long the client of this call waits, if it said so. An ill-formed header counts as none, as it does in tonic.
pub fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    parse(metadata.get(HEADER)?.to_str().ok()?)
}

/// The same from the headers of a plain HTTP request.
pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(HEADER)?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(n * 3600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_and_every_ill_form() {
        let cases: [(&str, Option<Duration>); 15] = [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("5S", Some(Duration::from_secs(5))),
            ("250m", Some(Duration::from_millis(250))),
            ("7u", Some(Duration::from_micros(7))),
            ("9n", Some(Duration::from_nanos(9))),
            ("0S", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("100000000S", None),
            ("", None),
            ("S", None),
            ("5", None),
            ("+5S", None),
            ("-5S", None),
            ("5s", None),
        ];
        for (text, expected) in cases {
            let mut metadata = MetadataMap::new();
            metadata.insert(HEADER, text.parse().unwrap());
            assert_eq!(grpc_timeout(&metadata), expected, "{text:?}");
        }
        assert_eq!(grpc_timeout(&MetadataMap::new()), None);
    }
}

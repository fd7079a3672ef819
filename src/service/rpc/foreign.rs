//! Errors that are not ours: tonic's own answers, which know no details and mix up some codes.

use tonic::{Code, Status};

use crate::service::error;

/// tonic's words, by which its answers are told apart. A test of the whole server holds each of them.
const TOO_LARGE: &str = "Error, decoded message length too large: ";
const INFLATES_TOO_LARGE: &str = "Error decompressing: size limit";
const COMPRESSION: &str = "Content is compressed with ";
const UNDECODABLE: [&str; 5] = [
    "failed to decode Protobuf message",
    "protocol error: received message with ",
    "Error decompressing",
    "Unexpected EOF decoding stream",
    "Missing request message",
];

/// The same error with an ErrorInfo, under the code that its cause deserves. `unknown_path`: the path, if no method has it.
pub(super) fn complete(status: &Status, unknown_path: Option<&str>) -> Status {
    let (code, message) = (status.code(), status.message());
    if let (Code::Unimplemented, Some(path)) = (code, unknown_path) {
        let text = format!("there is no method '{}'", error::cut(path));
        return error::status(code, "UNKNOWN_METHOD", text, [("path", path.to_owned())]);
    }
    if code == Code::OutOfRange && message.starts_with(TOO_LARGE)
        || code == Code::ResourceExhausted && message.starts_with(INFLATES_TOO_LARGE)
    {
        return too_large(message);
    }
    if code == Code::Unimplemented && message.starts_with(COMPRESSION) {
        let encoding = message.split('`').nth(1).unwrap_or_default().to_owned();
        let text =
            format!("requests compressed with '{}' are not taken; send them plain", error::cut(&encoding));
        return error::status(code, "UNSUPPORTED_COMPRESSION", text, [("encoding", encoding)]);
    }
    if code == Code::Internal && UNDECODABLE.iter().any(|words| message.starts_with(words)) {
        let text = format!("the request is not a message of this method: {message}");
        return error::status(Code::InvalidArgument, "MALFORMED_REQUEST", text, []);
    }
    error::status(code, super::code_name(code), message, [])
}

fn too_large(message: &str) -> Status {
    let mut numbers = message.split(|c: char| !c.is_ascii_digit()).filter(|s| !s.is_empty());
    // "found {size} bytes, the limit is: {limit} bytes"; where it was compressed, the limit alone.
    let (first, second) = (numbers.next().unwrap_or_default(), numbers.next());
    let limit = second.unwrap_or(first).to_owned();
    let text = match second {
        Some(_) => format!("the request has {first} bytes; at most {limit}"),
        None => format!("the request is too large; at most {limit} bytes"),
    };
    error::status(Code::ResourceExhausted, "REQUEST_TOO_LARGE", text, [("limit", limit)])
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt;

    use super::*;

    #[test]
    fn causes_have_their_codes_and_reasons() {
        use Code::{Internal, InvalidArgument, OutOfRange, ResourceExhausted, Unimplemented, Unknown};
        let cases = [
            (Unimplemented, "", Some("/a/b"), Unimplemented, "UNKNOWN_METHOD", "there is no method '/a/b'"),
            (Unimplemented, "", None, Unimplemented, "UNIMPLEMENTED", ""),
            (
                OutOfRange,
                "Error, decoded message length too large: found 9 bytes, the limit is: 4 bytes",
                None,
                ResourceExhausted,
                "REQUEST_TOO_LARGE",
                "the request has 9 bytes; at most 4",
            ),
            (
                ResourceExhausted,
                "Error decompressing: size limit, of 4 bytes, exceeded while decompressing message",
                None,
                ResourceExhausted,
                "REQUEST_TOO_LARGE",
                "the request is too large; at most 4 bytes",
            ),
            (
                Unimplemented,
                "Content is compressed with `br` which isn't supported",
                None,
                Unimplemented,
                "UNSUPPORTED_COMPRESSION",
                "requests compressed with 'br' are not taken; send them plain",
            ),
            (
                Internal,
                "Missing request message.",
                None,
                InvalidArgument,
                "MALFORMED_REQUEST",
                "the request is not a message of this method: Missing request message.",
            ),
            (Internal, "else", None, Internal, "INTERNAL", "else"),
            (OutOfRange, "else", None, OutOfRange, "OUT_OF_RANGE", "else"),
            (Unknown, "", Some("/a/b"), Unknown, "UNKNOWN", ""),
        ];
        for (code, message, path, new_code, reason, text) in cases {
            let status = complete(&Status::new(code, message), path);
            assert_eq!((status.code(), status.message()), (new_code, text));
            assert_eq!(status.get_error_details().error_info().unwrap().reason, reason);
        }
    }
}

use super::*;

/// What is found for request 1: a result, an error, nothing, or why it can't be read.
fn shown(text: &str) -> String {
    match find(text.as_bytes(), 1) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(Reply::Result(result))) => format!("result {result}"),
        Ok(Some(Reply::Error(error))) => {
            let ours = if error.ours { "" } else { " (no id)" };
            let stateless = if error.hints_at_stateless() { " (stateless?)" } else { "" };
            format!("{}{ours}{stateless}", error.text())
        }
        Err(why) => format!("wrong: {why}"),
    }
}

#[test]
fn answers_among_messages() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}"#, r#"result {"a":1.0}"#),
        (r#" {"result":[],"extra":{},"id":1,"jsonrpc":"2.0"} "#, "result []"),
        // Ids that clients take for a 1, and those of other requests.
        (r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, "result {}"),
        (r#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#, "result {}"),
        (r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":10,"result":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":"one","result":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":[1],"result":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","result":{}}"#, "nothing"),
        // Errors: the server's own, and those from before it knew the id.
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no \u00e9"}}"#, "error -32000: no é"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}"#, "error -32602: "),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"m","data":3}}"#, "error 7: m (no id)"),
        (r#"{"jsonrpc":"2.0","error":{"code":7,"message":"m"}}"#, "error 7: m (no id)"),
        (r#"{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":"m"}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#, "error -32601: m (stateless?)"),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"],"requested":"x"}}}"#,
            "error -32022: m (stateless?)",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}}"#,
            "error -32022: m",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m"}}"#, "error -32022: m"),
        // What the server asks and tells on its own, even with our id.
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#, "nothing"),
        // Batches, which 2025-03-26 has.
        (
            r#"[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":1,"result":{"b":2}}]"#,
            r#"result {"b":2}"#,
        ),
        (r#"[{"jsonrpc":"2.0","id":3,"result":{}}]"#, "nothing"),
        ("[]", "nothing"),
        // What is no message.
        (r#"{"jsonrpc":"2.0","id":1}"#, "wrong: the answer has neither a result nor an error"),
        (r#"{"id":1,"result":{}}"#, "wrong: no JSON-RPC message: it is not marked as 2.0"),
        (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, "wrong: no JSON-RPC message: it is not marked as 2.0"),
        (r#"{"jsonrpc":2.0,"id":1,"result":{}}"#, "wrong: no JSON-RPC message: it is not marked as 2.0"),
        ("{}", "wrong: no JSON-RPC message: it is not marked as 2.0"),
    ];
    for (text, expect) in cases {
        assert_eq!(shown(text), expect, "{text}");
    }
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#, "[".repeat(9_999), "]".repeat(9_999));
    let broken = [
        "",
        "x",
        "1",
        "<html>",
        "[1]",
        "[",
        r#"{"jsonrpc":"2.0","id":1,"result":{}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}} x"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":"7"}}"#,
        "\u{0}",
    ];
    for text in broken {
        assert!(shown(text).starts_with("wrong: no JSON-RPC message: "), "{text}: {}", shown(text));
    }
    assert!(find(b"\xff\xfe", 1).is_err());
    assert!(matches!(find(deep.as_bytes(), 1), Ok(Some(Reply::Result(_)))), "depth takes no stack");
}

#[test]
fn events_cut_anywhere() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("data: a\n\n", &["a"]),
        ("data: a\r\n\r\n", &["a"]),
        ("data: a\r\r", &["a"]),
        ("data:a\n\ndata:  b\n\n", &["a", " b"]),
        ("event: message\ndata: a\nid: 1\nretry: 3000\n\n", &["a"]),
        ("event:\ndata: a\n\n", &["a"]),
        ("data: a\ndata\ndata: b\n\n", &["a\n\nb"]),
        // Comments, unknown fields, blank lines, and a mark at the very beginning.
        (": keep-alive\n\n:\n\ndata: a\n:c\n\n", &["a"]),
        ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]),
        ("\n\n\r\n\ndata: a\n\n\n", &["a"]),
        ("DATA: a\ndata : b\nfoo: c\n\n", &[]),
        // Only whole events count, and those of other types do not.
        ("data: a\n", &[]),
        ("data: a", &[]),
        ("event: endpoint\ndata: /messages\n\ndata: a\n\n", &["a"]),
        ("event: x\n\ndata: a\n\n", &["a"]),
        // An event that only tells where to resume.
        ("id: 7\ndata:\n\ndata: a\n\n", &["", "a"]),
        ("id: 7\n\ndata: a\n\n", &["a"]),
        ("data: é\r\n\r\ndata: {\"a\": \"b: c\"}\r\n\r\n", &["é", "{\"a\": \"b: c\"}"]),
    ];
    for (text, expect) in cases {
        for size in [1, 2, 3, 5, 1_000] {
            let mut events = Events::default();
            let found: Vec<_> = text.as_bytes().chunks(size).flat_map(|cut| events.push(cut)).collect();
            let found: Vec<_> = found.iter().map(|data| std::str::from_utf8(data).unwrap()).collect();
            assert_eq!(found, *expect, "{text:?} in pieces of {size}");
        }
    }
}

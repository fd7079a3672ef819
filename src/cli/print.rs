//! What commands print: tables for people, JSON for scripts.

use std::{
    collections::HashMap,
    io::{self, IsTerminal, Write},
};

use comfy_table::{LineStyle, Table, TableStyle};
use prost_types::Timestamp;
use serde::Serialize;

use super::Failure;
use crate::core::name::clean;

/// Longest text of a cell, in characters.
const MAX_CELL: usize = 200;

/// Prints a text and a newline on stdout.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a value as indented JSON.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(&serde_json::to_string_pretty(value).map_err(|e| Failure::Failed(e.to_string()))?)
}

/// Prints a table.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    line(&render(header, rows, io::stdout().is_terminal()))
}

/// Prints a table, or, where it has no rows, a remark on stderr: a script that reads the table finds nothing.
pub(super) fn table_or(header: &[&str], rows: &[Vec<String>], none: &str) -> Result<(), Failure> {
    if rows.is_empty() {
        note(none);
        return Ok(());
    }
    table(header, rows)
}

/// Prints a remark on stderr.
pub(super) fn note(text: &str) {
    // Nothing can be done where even stderr is gone.
    let _ = writeln!(io::stderr(), "{}", clean(text, 2_000));
}

/// Prints a warning on stderr.
pub(super) fn warn(text: &str) {
    // Nothing can be done where even stderr is gone.
    let _ = writeln!(io::stderr(), "warning: {}", clean(text, 2_000));
}

/// Columns with a rule under the header on a terminal; aligned by spaces alone in a pipe.
pub(super) fn render(header: &[&str], rows: &[Vec<String>], terminal: bool) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(if terminal { TableStyle::new().header_separator(rule) } else { TableStyle::new() });
    table.set_header(header);
    table.add_rows(rows.iter().map(|row| row.iter().map(|c| cell(c)).collect::<Vec<_>>()));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// A text from elsewhere, made fit for one line of a terminal. An empty one is `-`, so that columns can be counted.
pub(super) fn cell(text: &str) -> String {
    let text = clean(&text.replace(['\n', '\t'], " "), MAX_CELL);
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A time for people, to the millisecond; empty where there is none.
pub(super) fn time(time: Option<&Timestamp>) -> String {
    let cut = |t: &Timestamp| Timestamp { nanos: t.nanos / 1_000_000 * 1_000_000, ..*t };
    time.map(|t| cut(t).to_string()).unwrap_or_default()
}

/// A duration for people, to the millisecond, or, where it is less than one, to the microsecond; empty where there is none.
pub(super) fn took(duration: Option<&prost_types::Duration>) -> String {
    let Some(duration) = duration else { return String::new() };
    let step = if duration.seconds == 0 && duration.nanos < 1_000_000 { 1_000 } else { 1_000_000 };
    prost_types::Duration { nanos: duration.nanos / step * step, ..*duration }.to_string()
}

/// The agent of a sentence.
pub(super) fn who(agent: &str) -> String {
    match agent {
        "" => "an agent without a policy".to_owned(),
        agent => format!("agent '{agent}'"),
    }
}

/// Labels, sorted, in one line.
pub(super) fn labels(labels: &HashMap<String, String>) -> String {
    let mut labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    labels.sort();
    if labels.is_empty() { "none".to_owned() } else { labels.join(", ") }
}

/// The first `max` characters of the first line.
pub(super) fn short(text: &str, max: usize) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    match first.char_indices().nth(max) {
        Some((at, _)) => format!("{}...", first[..at].trim_end()),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let rows = [
            vec!["search".to_owned(), "1".to_owned(), String::new()],
            vec!["a\u{1b}[2Jb\nc".to_owned(), "200".to_owned(), "x y".to_owned()],
        ];
        let plain = render(&["NAME", "N", "TEXT"], &rows, false);
        assert_eq!(plain, "NAME     N    TEXT\nsearch   1    -\na[2Jb c  200  x y");
        let terminal = render(&["NAME", "N", "TEXT"], &rows, true);
        let lines: Vec<&str> = terminal.lines().collect();
        assert_eq!(lines[0], "NAME      N     TEXT");
        assert!(lines.len() == 4 && lines[1].chars().all(|c| c == '─'), "{terminal}");
        assert_eq!(render(&["NAME"], &[], false), "NAME");
    }

    #[test]
    fn times_end_at_the_millisecond() {
        for (nanos, expected) in [
            (0, "2026-01-02T03:04:05Z"),
            (123_456_789, "2026-01-02T03:04:05.123Z"),
            (999_999, "2026-01-02T03:04:05Z"),
        ] {
            assert_eq!(time(Some(&Timestamp { seconds: 1_767_323_045, nanos })), expected);
        }
        for (seconds, nanos, expected) in
            [(0, 412_345, "0.000412s"), (0, 12_345_678, "0.012s"), (3, 1, "3s"), (0, 0, "0s")]
        {
            assert_eq!(took(Some(&prost_types::Duration { seconds, nanos })), expected);
        }
        assert_eq!((time(None), took(None)), (String::new(), String::new()));
    }

    #[test]
    fn short_texts() {
        for (text, expected) in
            [("abc", "abc"), ("abcd", "abc..."), ("ab\ncd", "ab"), ("", ""), ("äöü", "äöü")]
        {
            assert_eq!(short(text, 3), expected);
        }
    }
}

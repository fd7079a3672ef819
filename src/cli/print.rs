//! What commands print: tables for people, JSON for scripts.

use std::io::{self, IsTerminal, Write};

use comfy_table::{LineStyle, Table, TableStyle};
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

/// Prints a value as JSON in one line, for streams.
pub(super) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    line(&serde_json::to_string(value).map_err(|e| Failure::Failed(e.to_string()))?)
}

/// Prints a table.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    line(&render(header, rows, io::stdout().is_terminal()))
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
    fn short_texts() {
        for (text, expected) in
            [("abc", "abc"), ("abcd", "abc..."), ("ab\ncd", "ab"), ("", ""), ("äöü", "äöü")]
        {
            assert_eq!(short(text, 3), expected);
        }
    }
}

//! What stands on the terminal, as lines that fit: pure, so that it can be shown in tests.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::count;
use crate::cli::print::cell;

/// Between two columns.
const GAP: usize = 2;

/// A column of a table that must fit.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column {
    title: &'static str,
    /// Narrower it says nothing; where not even this fits, it is left out.
    least: usize,
    /// The higher, the sooner it is left out. 0 stays.
    rank: u8,
}

impl Column {
    pub(super) const fn new(title: &'static str, least: usize, rank: u8) -> Self {
        Self { title, least, rank }
    }
}

/// Characters of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// How the stream is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Link {
    /// Connected; no state came yet.
    Waiting,
    Live,
    /// Cut, until the time is over.
    Cut {
        why: String,
        left: Duration,
    },
    Connecting,
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) link: &'a Link,
    /// 0: no state came yet.
    pub(super) revision: u64,
    /// How long ago something changed, after the first state.
    pub(super) changed: Option<Duration>,
    pub(super) plural: &'a str,
    pub(super) columns: &'a [Column],
    pub(super) rows: &'a [&'a [String]],
    /// What stands below the table; often nothing.
    pub(super) allowed: &'a str,
}

impl Frame<'_> {
    /// The lines, at most as many and as long as the terminal's.
    pub(super) fn lines(&self, size: Size) -> Vec<String> {
        let mut lines = vec![self.title.to_owned(), self.state()];
        let below = if self.allowed.is_empty() { 0 } else { 1 };
        let why = match self.link {
            Link::Cut { why, .. } => Some(cell(why)),
            _ => None,
        };
        if self.revision == 0 {
            lines.extend(why);
        } else {
            // The line above the table, the titles, and what is below the rows.
            let room = size.height.saturating_sub(lines.len() + 2 + below);
            let shown = if self.rows.len() <= room { self.rows.len() } else { room.saturating_sub(1) };
            let more = self.rows.len() - shown;
            lines.push(why.unwrap_or_default());
            lines.extend(table(self.columns, &self.rows[..shown], size.width));
            if more > 0 {
                lines.push(format!("and {more} more"));
            }
            if below > 0 {
                lines.push(format!("allowed now: {}", cell(self.allowed)));
            }
        }
        lines.truncate(size.height);
        lines.iter().map(|line| cut(line, size.width)).collect()
    }

    fn state(&self) -> String {
        let mut parts = vec![match self.link {
            Link::Waiting => "waiting for the first state".to_owned(),
            Link::Live => "live".to_owned(),
            Link::Cut { left, .. } => format!("reconnecting in {} s", left.as_secs_f64().ceil()),
            Link::Connecting => "reconnecting".to_owned(),
        }];
        if self.revision > 0 {
            parts.push(count(self.rows.len(), self.plural));
            parts.push(format!("revision {}", self.revision));
        }
        parts.extend(self.changed.map(|ago| format!("last change {} ago", rough(ago))));
        parts.join(", ")
    }
}

/// The titles and the rows, in columns.
fn table(columns: &[Column], rows: &[&[String]], width: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let natural: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|text| text.width());
            cells.max().unwrap_or(0).max(column.title.width())
        })
        .collect();
    let widths = fit(columns, &natural, width);
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    std::iter::once(&titles).chain(&rows).map(|row| line(row, &widths)).collect()
}

/// The width of each column; none where it is left out.
fn fit(columns: &[Column], natural: &[usize], width: usize) -> Vec<Option<usize>> {
    let least = |at: usize| natural[at].min(columns[at].least);
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    kept.sort_by_key(|at| columns[*at].rank);
    let used = |kept: &[usize]| -> usize {
        kept.iter().map(|at| least(*at)).sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    while used(&kept) > width && kept.last().is_some_and(|at| columns[*at].rank > 0) {
        kept.pop();
    }
    let mut left = width.saturating_sub(used(&kept));
    let mut widths = vec![None; columns.len()];
    for at in kept {
        let extra = (natural[at] - least(at)).min(left);
        left -= extra;
        widths[at] = Some(least(at) + extra);
    }
    widths
}

fn line(cells: &[String], widths: &[Option<usize>]) -> String {
    let mut line = String::new();
    for (text, width) in cells.iter().zip(widths) {
        let Some(width) = *width else { continue };
        let text = cut(text, width);
        line.push_str(&text);
        line.extend(std::iter::repeat_n(' ', width - text.width() + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

/// As much of a text as fits.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut fits = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        fits.push(c);
    }
    if width > 0 {
        fits.push('…');
    }
    fits
}

/// A time in its largest unit.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Item, *};
    use crate::proto::v1::Tool;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
        let since = "2026-11-30T08:00:00Z";
        vec![
            row([
                "send_message",
                "UNAVAILABLE",
                since,
                "PROBE_ERROR",
                "connection refused by 10.0.0.1:8080",
                "ann",
            ]),
            row(["clock", "AVAILABLE", since, "", "", "bob"]),
            row(["検索", "AVAILABLE (last good)", since, "PROBE_ERROR", "a\u{1b}[31m\nb", ""]),
        ]
    }

    fn frame(width: usize, height: usize, change: impl FnOnce(&mut Frame<'_>)) -> String {
        frame_of(&Link::Live, width, height, change)
    }

    fn frame_of(link: &Link, width: usize, height: usize, change: impl FnOnce(&mut Frame<'_>)) -> String {
        let rows = rows();
        let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
        let mut frame = Frame {
            title: "tools of default at http://127.0.0.1:50051",
            link,
            revision: 12,
            changed: Some(Duration::from_secs(5)),
            plural: "tools",
            columns: Tool::COLUMNS,
            rows: &rows,
            allowed: "",
        };
        change(&mut frame);
        let lines = frame.lines(Size { width, height });
        assert!(lines.len() <= height && lines.iter().all(|line| line.width() <= width), "{lines:#?}");
        format!("\n{}\n", lines.join("\n"))
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        let expected = "
tools of default at http://127.0.0.1:50051
live, 3 tools, revision 12, last change 5 s ago

NAME          VERDICT                SINCE                 REASON       MESSAGE                              OWNER
send_message  UNAVAILABLE            2026-11-30T08:00:00Z  PROBE_ERROR  connection refused by 10.0.0.1:8080  ann
clock         AVAILABLE              2026-11-30T08:00:00Z  -            -                                    bob
検索          AVAILABLE (last good)  2026-11-30T08:00:00Z  PROBE_ERROR  a[31m b                              -
";
        assert_eq!(frame(120, 24, |_| {}), expected);
    }

    #[test]
    fn a_narrow_one_shortens_and_leaves_out() {
        let expected = "
tools of default at http://127.0.0.1:50051
live, 3 tools, revision 12, last change 5 s ago

NAME          VERDICT                REASON       MESSAGE
send_message  UNAVAILABLE            PROBE_ERROR  connection refused by 10.0.0.…
clock         AVAILABLE              -            -
検索          AVAILABLE (last good)  PROBE_ERROR  a[31m b
";
        assert_eq!(frame(80, 24, |_| {}), expected);
        let expected = "
tools of default at http://127.0.0.1:50…
live, 3 tools, revision 12, last change…

NAME          VERDICT        REASON
send_message  UNAVAILABLE    PROBE_ERROR
clock         AVAILABLE      -
検索          AVAILABLE (l…  PROBE_ERROR
";
        assert_eq!(frame(40, 24, |_| {}), expected);
        frame(3, 24, |_| {});
        frame(0, 24, |_| {});
    }

    #[test]
    fn a_low_one_counts_what_it_leaves_out() {
        let expected = "
tools of default at http://127.0.0.1:50051
live, 3 tools, revision 12, last change 5 s ago

NAME          VERDICT      REASON       MESSAGE
send_message  UNAVAILABLE  PROBE_ERROR  connection refused by 10.0.0.1:8080
and 2 more
";
        assert_eq!(frame(80, 6, |_| {}), expected);
        for height in 0..10 {
            frame(80, height, |frame| frame.allowed = "[]");
        }
    }

    #[test]
    fn the_state_of_the_stream() {
        let cut =
            Link::Cut { why: "cut early\n(UNAVAILABLE)".to_owned(), left: Duration::from_millis(1_200) };
        let mut seen = Vec::new();
        for (link, revision, changed) in [
            (&Link::Waiting, 0, None),
            (&Link::Live, 7, None),
            (&cut, 7, Some(61)),
            (&Link::Connecting, 7, Some(3_600 * 5)),
            (&Link::Live, 7, Some(86_400 * 3)),
        ] {
            let text = frame_of(link, 80, 24, |frame| {
                frame.revision = revision;
                frame.changed = changed.map(Duration::from_secs);
            });
            seen.push(text.lines().nth(2).unwrap().to_owned());
        }
        assert_eq!(
            seen,
            [
                "waiting for the first state",
                "live, 3 tools, revision 7",
                "reconnecting in 2 s, 3 tools, revision 7, last change 1 min ago",
                "reconnecting, 3 tools, revision 7, last change 5 h ago",
                "live, 3 tools, revision 7, last change 3 d ago",
            ]
        );
        let text = frame_of(&cut, 80, 24, |_| {});
        assert_eq!(
            text.lines().nth(3),
            Some("cut early (UNAVAILABLE)"),
            "above the table, which stays: {text}"
        );
        assert_eq!(text.lines().nth(5).map(|line| &line[..12]), Some("send_message"));
        let allowed = frame(80, 24, |frame| frame.allowed = "[\"clock\"]");
        assert!(allowed.ends_with("\nallowed now: [\"clock\"]\n"), "{allowed}");
        let waiting = frame(80, 24, |frame| frame.revision = 0);
        assert_eq!(waiting.trim().lines().count(), 2, "no table before the first state");
        let waiting = frame_of(&cut, 80, 24, |frame| frame.revision = 0);
        assert_eq!(waiting.trim().lines().last(), Some("cut early (UNAVAILABLE)"));
    }
}

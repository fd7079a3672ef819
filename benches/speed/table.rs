//! What the rows found, as a table and as JSON.

use serde_json::{Value, json};

/// What a figure must keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Told, and not judged.
    None,
}

impl Target {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", figure(least)),
            Self::AtMost(most) => format!("<= {}", figure(most)),
            Self::None => String::new(),
        }
    }
}

/// One line: a figure, what it is compared with, and how much it may be of that.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    what: String,
    unit: &'static str,
    ours: f64,
    /// What else was measured in the same run, and its figure.
    beside: Option<(String, f64)>,
    target: Target,
}

impl Line {
    /// A figure that is judged by itself.
    pub(crate) fn plain(what: impl Into<String>, unit: &'static str, ours: f64, target: Target) -> Self {
        Self { what: what.into(), unit, ours, beside: None, target }
    }

    /// A figure that is judged by its ratio to another one.
    pub(crate) fn ratio(
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        beside: (impl Into<String>, f64),
        target: Target,
    ) -> Self {
        Self { what: what.into(), unit, ours, beside: Some((beside.0.into(), beside.1)), target }
    }

    fn ratio_of(&self) -> Option<f64> {
        self.beside.as_ref().map(|(_, theirs)| self.ours / theirs)
    }

    fn is_met(&self) -> Option<bool> {
        self.target.is_met(self.ratio_of().unwrap_or(self.ours))
    }
}

/// All lines so far, by row.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(&'static str, Line)>);

impl Table {
    pub(crate) fn header() {
        println!(
            "{:13} {:46} {:>12} {:>34} {:>7} {:>9}  verdict",
            "row", "what", "toolpulse", "beside it", "ratio", "target"
        );
    }

    /// Adds the lines of a row, and prints them.
    pub(crate) fn add(&mut self, row: &'static str, lines: Vec<Line>, is_json: bool) {
        for line in lines {
            if !is_json {
                print(row, &line);
            }
            self.0.push((row, line));
        }
    }

    pub(crate) fn json(&self, conditions: &Value) -> Value {
        let lines: Vec<Value> = self
            .0
            .iter()
            .map(|(row, line)| {
                let (beside, theirs) = line.beside.clone().unzip();
                json!({
                    "row": row, "what": line.what, "unit": line.unit, "toolpulse": line.ours, "beside": beside,
                    "beside_value": theirs, "ratio": line.ratio_of(), "target": line.target.text(), "met": line.is_met(),
                })
            })
            .collect();
        json!({ "conditions": conditions, "lines": lines })
    }

    /// How many of the judged lines keep their targets.
    pub(crate) fn summary(&self) -> String {
        let judged: Vec<bool> = self.0.iter().filter_map(|(_, line)| line.is_met()).collect();
        let met = judged.iter().filter(|met| **met).count();
        format!("{met} of {} targets are met", judged.len())
    }
}

fn print(row: &str, line: &Line) {
    let beside = line.beside.as_ref().map(|(name, theirs)| format!("{} {name}", figure(*theirs)));
    let ratio = line.ratio_of().map(|ratio| format!("{ratio:.2}"));
    let verdict = match line.is_met() {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    println!(
        "{row:13} {:46} {:>12} {:>34} {:>7} {:>9}  {verdict}",
        format!("{}, {}", line.what, line.unit),
        figure(line.ours),
        beside.unwrap_or_default(),
        ratio.unwrap_or_default(),
        line.target.text(),
    );
}

/// Three digits are as much as such figures can say.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

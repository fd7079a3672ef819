//! Finds tools by words: BM25 over a list, so that what an agent may not see or does not work can't be found.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::CatalogTool;
use crate::core::tool::ToolSpec;

/// How soon repeating a word stops to count.
const K1: f32 = 1.2;
/// How much a long text is held against a tool.
const B: f32 = 0.75;
/// A word of the name says more about a tool than one of its description.
const NAME: u32 = 3;
const TITLE: u32 = 2;
const REST: u32 = 1;
/// Shortest word that a plural's `s` is taken from.
const PLURAL: usize = 4;

/// A tool that fits a query.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The tool.
    pub tool: &'a Arc<CatalogTool>,
    /// How well: comparable within one answer only.
    pub score: f32,
}

/// The words of one tool, with how often they count.
#[derive(Debug)]
pub(super) struct Terms {
    counts: BTreeMap<String, u32>,
    length: u32,
}

/// Which of a list's tools hold a word.
#[derive(Debug)]
pub(super) struct Index {
    postings: HashMap<String, Vec<(u32, u32)>>,
    lengths: Vec<u32>,
    average: f32,
}

impl Terms {
    /// The words of name, title, description and argument names.
    pub(super) fn of(spec: &ToolSpec) -> Self {
        let mut terms = Self { counts: BTreeMap::new(), length: 0 };
        terms.add(spec.name.as_str(), NAME);
        terms.add(&spec.title, TITLE);
        terms.add(&spec.description, REST);
        if let Ok(schema) = serde_json::from_str(&spec.input_schema) {
            let mut names = BTreeSet::new();
            arguments(&schema, &mut names);
            names.iter().for_each(|name| terms.add(name, REST));
        }
        terms
    }

    fn add(&mut self, text: &str, weight: u32) {
        for word in words(text) {
            *self.counts.entry(word).or_default() += weight;
            self.length += weight;
        }
    }
}

impl Index {
    pub(super) fn new(tools: &[Arc<CatalogTool>]) -> Self {
        let mut postings: HashMap<String, Vec<(u32, u32)>> = HashMap::new();
        let mut lengths = Vec::with_capacity(tools.len());
        for (tool, at) in tools.iter().zip(0u32..) {
            let terms = tool.terms();
            lengths.push(terms.length);
            for (word, count) in &terms.counts {
                match postings.get_mut(word.as_str()) {
                    Some(found) => found.push((at, *count)),
                    None => {
                        postings.insert(word.clone(), vec![(at, *count)]);
                    }
                }
            }
        }
        let total: f32 = lengths.iter().map(|n| *n as f32).sum();
        let average = (total / lengths.len().max(1) as f32).max(1.0);
        Self { postings, lengths, average }
    }

    /// The best of `tools`, which are those of the index, the best first; equally good ones in the list's order.
    pub(super) fn search<'a>(
        &self,
        tools: &'a [Arc<CatalogTool>],
        query: &str,
        limit: usize,
    ) -> Vec<Hit<'a>> {
        let words: BTreeSet<String> = words(query).collect();
        let mut scores: BTreeMap<u32, f32> = BTreeMap::new();
        let total = self.lengths.len() as f32;
        for found in words.iter().filter_map(|word| self.postings.get(word)) {
            let holders = found.len() as f32;
            let rarity = (1.0 + (total - holders + 0.5) / (holders + 0.5)).ln();
            for (at, count) in found {
                let length = self.lengths[*at as usize] as f32 / self.average;
                let count = *count as f32;
                let weight = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
                *scores.entry(*at).or_default() += rarity * weight;
            }
        }
        let mut hits: Vec<Hit<'a>> =
            scores.into_iter().map(|(at, score)| Hit { tool: &tools[at as usize], score }).collect();
        // Stable: the scores come in the list's order.
        hits.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        hits.truncate(limit);
        hits
    }
}

/// The names of all properties of a schema, at any depth.
fn arguments(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                names.extend(properties.keys().cloned());
            }
            members.values().for_each(|value| arguments(value, names));
        }
        Value::Array(items) => items.iter().for_each(|value| arguments(value, names)),
        _ => {}
    }
}

/// Lower-case words: split at everything but letters and digits, and where camel case begins a new one; without the `s` of a
/// plural, so that `documents` finds `document`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut split = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for c in text.chars() {
        if c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            split.push(' ');
        }
        before = c;
        if c.is_alphanumeric() { split.extend(c.to_lowercase()) } else { split.push(' ') }
    }
    let words: Vec<String> = split.split_whitespace().map(singular).collect();
    words.into_iter()
}

fn singular(word: &str) -> String {
    let stem = word.strip_suffix('s').filter(|stem| word.len() >= PLURAL && !stem.ends_with('s'));
    stem.unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_words() {
        for (text, expected) in [
            ("search_docs", &["search", "doc"][..]),
            ("getHTTPStatus.v2", &["get", "httpstatu", "v2"]),
            ("Sends e-mails; glass, as is", &["send", "e", "mail", "glass", "as", "is"]),
            ("\u{dc}BER Stra\u{df}e", &["\u{fc}ber", "stra\u{df}e"]),
            ("", &[]),
        ] {
            assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn arguments_are_found_at_any_depth() {
        let schema =
            serde_json::json!({"properties": {"a": {"items": {"properties": {"b": {}}}}}, "required": ["c"]});
        let mut names = BTreeSet::new();
        arguments(&schema, &mut names);
        assert_eq!(names, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }
}

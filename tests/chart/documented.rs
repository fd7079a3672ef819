//! values.yaml as a newcomer reads it: no key without a comment, none that the schema does not know, none that no template
//! uses; and a README that says the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use toolpulse::config::OPTIONS;

use crate::{
    helm::{CHART, list, text},
    support::env,
};

/// What begins the comment of a key.
const MARK: &str = "# -- ";
/// The table of values in the README is between these.
const TABLE: (&str, &str) = ("<!-- values: made from values.yaml -->\n", "<!-- /values -->\n");

/// One key of values.yaml.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// `store.sqlite.size`.
    pub(crate) path: String,
    /// What the comment above it says, in one line.
    comment: String,
    /// Its default.
    pub(crate) default: Value,
    /// Whether there are keys of ours below it.
    is_section: bool,
}

#[test]
fn every_key_has_a_comment() {
    let wrong: Vec<String> = keys()
        .into_iter()
        .filter(|k| k.comment.len() < 5 || !k.comment.ends_with('.'))
        .map(|k| k.path)
        .collect();
    assert!(wrong.is_empty(), "no comment that begins with '{MARK}' and ends with a full stop: {wrong:?}");
}

#[test]
fn no_comment_is_left_over() {
    let text = read("values.yaml");
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with(MARK)).count(), keys().len());
    assert!(text.lines().all(|l| l.chars().count() <= 128), "a line is too long to be read");
}

#[test]
fn schema_and_values_know_the_same_keys() {
    let values: BTreeSet<String> = keys().into_iter().map(|k| k.path).collect();
    let mut known = BTreeSet::new();
    properties(&schema(), "", &mut known);
    assert_eq!(known.difference(&values).collect::<Vec<_>>(), [""; 0], "in the schema alone");
    assert_eq!(values.difference(&known).collect::<Vec<_>>(), [""; 0], "in values.yaml alone");
}

#[test]
fn the_schema_is_closed() {
    closed(&schema(), "");
    fn closed(schema: &Value, at: &str) {
        let Some(properties) = schema["properties"].as_object() else { return };
        // What Kubernetes names may have more than is checked here.
        let foreign = at.ends_with("[]") && schema["additionalProperties"] != false;
        assert!(foreign || schema["additionalProperties"] == false, "{at} takes unknown keys");
        for (key, property) in properties {
            closed(property, &format!("{at}.{key}"));
            closed(&property["items"], &format!("{at}.{key}[]"));
        }
    }
}

/// What needs no chart's help is reached by `config`; the schema knows each by its name.
#[test]
fn every_setting_of_the_server_is_reached() {
    let schema = schema();
    let known: BTreeSet<&str> = schema["properties"]["config"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let clients = ["server", "server_ca", "client_cert", "client_key", "namespace", "output"];
    let all: BTreeSet<&str> = OPTIONS.iter().map(|o| o.key).filter(|key| !clients.contains(key)).collect();
    assert_eq!(known, all, "what values.schema.json knows in config, and what the server has");
}

#[test]
fn templates_use_only_what_values_has() {
    let all: BTreeSet<String> = keys().into_iter().map(|k| k.path).collect();
    for (file, template) in templates() {
        for used in uses(&template) {
            // Below a key that is a map of anybody's, anything goes.
            let known = all.contains(&used) || used == "autoscaling";
            assert!(known, "{file} uses .Values.{used}, which values.yaml does not have");
        }
    }
    assert_eq!(uses("{{ $.Values.a.b }} {{ .Values.c}}"), ["a.b", "c"]);
}

/// Each would make two renderings of the same values differ, or hide an object that was asked for.
#[test]
fn templates_depend_on_values_alone() {
    for (file, template) in templates() {
        for never in [
            "randAlpha",
            "randNumeric",
            "randBytes",
            "uuidv4",
            "genCA",
            "genSelf",
            "genSigned",
            "lookup ",
            "now ",
            ".Capabilities",
            ".Files",
        ] {
            assert!(!template.contains(never), "{file} has {never}");
        }
        if file.ends_with("NOTES.txt") {
            continue;
        }
        // `default` takes 0, false and "" for nothing: only texts and maps that are empty when unset may use it.
        for line in template.lines().filter(|l| l.contains("default ")) {
            let fine = [
                "default (dict)",
                "default (list)",
                "default .Chart",
                "default .Release",
                "default 0 (get $seen",
            ];
            assert!(!line.contains("{{") || fine.iter().any(|f| line.contains(f)), "{file}: {line}");
        }
    }
}

/// `TOOLPULSE_UPDATE_GOLDENS=1` writes the table anew.
#[test]
fn the_readme_has_the_table_of_values() {
    let path = Path::new(CHART).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (head, rest) = readme.split_once(TABLE.0).expect("the mark where the table begins");
    let (written, tail) = rest.split_once(TABLE.1).expect("the mark where the table ends");
    let table = table();
    if env("TOOLPULSE_UPDATE_GOLDENS").is_some() {
        fs::write(&path, [head, TABLE.0, &table, TABLE.1, tail].concat()).unwrap();
    } else {
        assert!(
            written == table,
            "helm/toolpulse/README.md is not as values.yaml; TOOLPULSE_UPDATE_GOLDENS=1 writes it"
        );
    }
}

/// All keys of values.yaml, in its order.
pub(crate) fn keys() -> Vec<Key> {
    let source = read("values.yaml");
    let values: Value = serde_saphyr::from_str(&source).unwrap();
    let comments = comments(&source);
    let mut keys = Vec::new();
    walk(&values, &schema(), "", &comments, &mut keys);
    keys
}

fn walk(values: &Value, schema: &Value, at: &str, comments: &BTreeMap<String, String>, keys: &mut Vec<Key>) {
    for (name, value) in values.as_object().unwrap() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let schema = &schema["properties"][name];
        // `config` and what Kubernetes defines are free-form: what is below is not ours to describe.
        let is_section =
            schema["properties"].is_object() && value.as_object().is_some_and(|map| !map.is_empty());
        let comment = comments.get(&path).cloned().unwrap_or_default();
        keys.push(Key { path: path.clone(), comment, default: value.clone(), is_section });
        if is_section {
            walk(value, schema, &path, comments, keys);
        }
    }
}

/// The comment above each key, by the key's path.
fn comments(source: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in source.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if let Some(begun) = line.strip_prefix(MARK) {
            comment = vec![begun];
        } else if let (Some(more), false) = (line.strip_prefix("# "), comment.is_empty()) {
            comment.push(more);
        } else if let Some((key, _)) = line.split_once(':').filter(|_| !line.starts_with(['#', '-'])) {
            path.retain(|(depth, _)| *depth < indent);
            path.push((indent, key));
            let full: Vec<&str> = path.iter().map(|(_, key)| *key).collect();
            found.insert(full.join("."), comment.join(" "));
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

/// The paths of all keys that the schema describes and values.yaml should have.
fn properties(schema: &Value, at: &str, known: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        // Refused in words, or a parent chart's.
        if !property["$comment"].is_null() {
            continue;
        }
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        if path != "config" {
            properties(property, &path, known);
        }
        known.insert(path);
    }
}

/// The paths after `.Values`, in order.
fn uses(template: &str) -> Vec<String> {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '.';
    template
        .split(".Values.")
        .skip(1)
        .map(|rest| rest[..rest.find(|c| !name(c)).unwrap_or(rest.len())].trim_end_matches('.').to_owned())
        .collect()
}

fn table() -> String {
    let mut table = "| key | default | what it is |\n|---|---|---|\n".to_owned();
    for key in keys() {
        let comment = key.comment.replace('|', "\\|");
        let line = if key.is_section {
            format!("| **`{}`** | | {comment} |\n", key.path)
        } else {
            format!("| `{}` | `{}` | {comment} |\n", key.path, key.default)
        };
        table.push_str(&line);
    }
    table
}

pub(crate) fn schema() -> Value {
    serde_json::from_str(&read("values.schema.json")).unwrap()
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(CHART).join(file)).unwrap()
}

fn templates() -> Vec<(String, String)> {
    let dirs = ["templates", "templates/tests"].map(|dir| Path::new(CHART).join(dir));
    let files: Vec<PathBuf> = dirs
        .iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap())
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_file())
        .collect();
    assert!(files.len() > 10);
    files.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// The schema's own list of what must be there is a list of keys that it has.
#[test]
fn what_is_required_exists() {
    fn check(schema: &Value, at: &str) {
        let Some(properties) = schema["properties"].as_object() else { return };
        for name in list(&schema["required"]) {
            assert!(properties.contains_key(text(name)), "{at} requires {name}");
        }
        for (key, property) in properties {
            check(property, &format!("{at}.{key}"));
        }
    }
    check(&schema(), "");
}

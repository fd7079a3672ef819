//! What each file of values renders to, as files that a review can read.
//!
//! `TOOLPULSE_UPDATE_GOLDENS=1` writes them anew. A golden holds the objects that are not as in `default.yaml`.

use std::{fs, path::PathBuf};

use crate::{
    helm::{Helm, in_parallel, value_files},
    support::env,
};

/// Between two objects.
const SEPARATOR: &str = "\n---\n";

#[test]
fn every_file_of_values_renders_to_its_golden() {
    let helms = Helm::all();
    let [.., newest] = helms.as_slice() else { return };
    let files = value_files();
    assert!(files.len() >= 25, "only {} files of values", files.len());
    let default = objects(newest, "");

    let wrong = in_parallel(&files, |(name, values)| {
        let mut wrong = Vec::new();
        let seen: Vec<Vec<String>> = helms.iter().map(|helm| objects(helm, values)).collect();
        if seen.iter().any(|objects| objects != &seen[0]) {
            wrong.push(format!("{name}: Helm 3 and 4 render it differently"));
        }
        let golden =
            if name == "default" { seen[0].join(SEPARATOR) + "\n" } else { difference(&default, &seen[0]) };
        if !is_as_written(name, &golden) {
            wrong.push(format!("{name}: the rendering is not {}", path(name).display()));
        }
        wrong
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}\nTOOLPULSE_UPDATE_GOLDENS=1 writes them anew", wrong.join("\n"));
}

#[test]
fn no_golden_is_left_over() {
    let names: Vec<String> = value_files().into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(path("x").parent().unwrap()).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(names.iter().any(|n| n == name), "{} belongs to no file of values", file.display());
    }
}

/// The objects' texts. Helm 4 leaves an empty line behind each, Helm 3 none.
fn objects(helm: &Helm, values: &str) -> Vec<String> {
    let text = helm.text(values);
    let text = text.strip_prefix("---\n").unwrap_or(&text);
    text.split(SEPARATOR).map(|object| object.trim_end().to_owned()).collect()
}

/// What is in one rendering and not in the other.
fn difference(default: &[String], seen: &[String]) -> String {
    let key = |object: &String| {
        let line = |start: &str| object.lines().find(|l| l.starts_with(start)).unwrap_or_default().to_owned();
        format!("{} {}", line("kind: "), line("  name: ").trim())
    };
    let keys: Vec<String> = seen.iter().map(key).collect();
    let gone = default.iter().map(key).filter(|k| !keys.contains(k));
    let gone: String = gone.map(|k| format!("# not rendered: {k}\n")).collect();
    let new: Vec<&str> = seen.iter().filter(|o| !default.contains(o)).map(String::as_str).collect();
    let text = format!("# All else is as in default.yaml.\n{gone}{}", new.join(SEPARATOR));
    format!("{}\n", text.trim_end())
}

fn is_as_written(name: &str, golden: &str) -> bool {
    let path = path(name);
    if env("TOOLPULSE_UPDATE_GOLDENS").is_some() {
        fs::write(&path, golden).unwrap();
    }
    fs::read_to_string(&path).is_ok_and(|written| written == golden)
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/golden")).join(format!("{name}.yaml"))
}

//! What is rendered is what Kubernetes takes: every object of every file of values, by the schemas of Kubernetes 1.31 to
//! the newest, and custom resources by small schemas of our own.

use std::{
    collections::BTreeMap,
    io::Write,
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    helm::{Helm, RELEASE, in_parallel, value_files},
    support::{env, skip},
};

/// The oldest version that the chart is for.
const OLDEST: &str = "1.31";

/// What the validator found.
#[derive(Debug, Deserialize)]
struct Judgement {
    versions: Vec<String>,
    errors: Vec<String>,
    /// Kinds that Kubernetes itself does not have.
    unknown: Vec<String>,
}

#[test]
fn every_object_is_one_that_kubernetes_takes() {
    let Some(helm) = Helm::newest() else { return };
    let rendered = in_parallel(&value_files(), |(_, values)| helm.render(values).0);
    // Most objects are the same for most values.
    let documents: BTreeMap<String, Value> =
        rendered.into_iter().flatten().map(|document| (document.to_string(), document)).collect();
    let documents: Vec<Value> = documents.into_values().collect();
    let Some(judged) = judge(&documents) else { return };
    assert!(judged.errors.is_empty(), "{}", judged.errors.join("\n"));
    assert!(judged.versions.len() >= 7 && judged.versions[0].starts_with(OLDEST), "{:?}", judged.versions);

    assert_eq!(judged.unknown, ["GRPCRoute"]);
    let schema: Value = serde_json::from_str(include_str!("schemas/grpcroute.json")).unwrap();
    let schema = jsonschema::options().offline().build(&schema).unwrap();
    let routes: Vec<&Value> = documents.iter().filter(|d| d["kind"] == "GRPCRoute").collect();
    assert!(!routes.is_empty());
    for route in routes {
        let errors: Vec<String> =
            schema.iter_errors(route).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?}\n{route}");
    }
}

#[test]
fn the_validator_finds_what_is_wrong() {
    let map = |more: Value| {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        map.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        map
    };
    for (more, errors) in [(json!({}), 0), (json!({"data": {"a": 1}}), 1), (json!({"dato": {}}), 1)] {
        let Some(judged) = judge(&[map(more.clone())]) else { return };
        assert_eq!(judged.errors.len(), errors * judged.versions.len(), "{more}: {:?}", judged.errors);
    }
}

#[test]
fn one_rendering_serves_every_version_of_kubernetes() {
    let Some(helm) = Helm::newest() else { return };
    let at = |version: &str, values: &str| helm.template_as(RELEASE, &["--kube-version", version], values);
    for (name, values) in value_files() {
        let oldest = at("1.31.0", &values).unwrap();
        assert_eq!(oldest.0, at("1.40.1-gke.100", &values).unwrap().0, "{name}");
    }
    let error = at("1.30.9", "").unwrap_err();
    assert!(error.contains(">=1.31.0-0"), "{error}");
}

/// Asks one process of Python about all of them; none where there is none, which is noted.
fn judge(documents: &[Value]) -> Option<Judgement> {
    let Some(python) = env("TOOLPULSE_TEST_PYTHON") else {
        skip("python", "TOOLPULSE_TEST_PYTHON names no Python; tests/run sets it");
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/validate.py");
    let mut command = Command::new(python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let asked = json!({"oldest": OLDEST, "documents": documents}).to_string();
    child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{script} failed");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

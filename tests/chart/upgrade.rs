//! From one version of the chart to the next: what Kubernetes lets nobody change stays as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Map, Value, json};

use crate::{
    helm::{CHART, Helm, RELEASE, Rendered, list, text, value_files},
    support::{env, skip},
};

/// The fields of a StatefulSet's spec that may change; all others are immutable, so a difference fails every upgrade.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// By hand, on purpose: no variable writes this anew.
#[test]
fn what_can_not_be_changed_is_as_it_was_in_the_first_version() {
    let pinned = json!({
        "name": "rel-toolpulse",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {
            "app.kubernetes.io/name": "toolpulse",
            "app.kubernetes.io/instance": "rel",
        }},
        "serviceName": "rel-toolpulse-headless",
        "volumeClaimTemplates": [{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "labels": {
                "app.kubernetes.io/name": "toolpulse",
                "app.kubernetes.io/instance": "rel",
            }},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }],
    });
    for helm in Helm::all() {
        assert_eq!(immutable(&helm.render("")), pinned);
    }
}

/// Whatever selects pods selects by the same labels: a Service or a budget that looked elsewhere would find nothing.
#[test]
fn all_selectors_are_the_statefulset_s() {
    let Some(helm) = Helm::newest() else { return };
    for (name, values) in value_files() {
        let rendered = helm.render(&values);
        let selector = &rendered.set()["selector"]["matchLabels"];
        assert_eq!(selector.as_object().unwrap().len(), 2, "{name}");
        for service in rendered.all("Service") {
            assert_eq!(&service["spec"]["selector"], selector, "{name}");
        }
        for budget in rendered.all("PodDisruptionBudget") {
            assert_eq!(&budget["spec"]["selector"]["matchLabels"], selector, "{name}");
        }
        for policy in rendered.all("NetworkPolicy") {
            assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], selector, "{name}");
        }
        let labels = |pod: &Value| pod["metadata"]["labels"].as_object().unwrap().clone();
        let selects = |labels: &Map<String, Value>| {
            selector.as_object().unwrap().iter().all(|(k, v)| labels.get(k) == Some(v))
        };
        assert!(selects(&labels(&rendered.set()["template"])), "{name}");
        for test in rendered.all("Pod") {
            assert!(!selects(&labels(test)), "{name}: the pod of helm test would get calls of agents");
        }
    }
}

/// `TOOLPULSE_TEST_CHART_BASE` is the chart as it was in the commit that this one is compared with.
#[test]
fn an_upgrade_from_the_commit_before_is_possible_or_announced() {
    let Some(base) = env("TOOLPULSE_TEST_CHART_BASE") else {
        skip("chart-base", "no earlier commit holds a chart");
        return;
    };
    let Some(helm) = Helm::newest() else { return };
    let (before, after) = (version(Path::new(&base)), version(Path::new(CHART)));
    let upgrading = fs::read_to_string(format!("{CHART}/UPGRADING.md")).unwrap();
    // What changes, and for which files of values.
    let mut changes = BTreeMap::<String, Vec<String>>::new();
    for file in fs::read_dir(Path::new(&base).join("ci")).unwrap() {
        let path = file.unwrap().path();
        let values = fs::read_to_string(&path).unwrap();
        let old = Rendered::parse(&helm.text_of(&base, RELEASE, &[], &values).unwrap());
        let found = match helm.template(&values) {
            Err(error) => vec![format!("refused: {error}")],
            Ok(new) => differences(&immutable(&old), &immutable(&new)),
        };
        for change in found {
            changes.entry(change).or_default().push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    let changes: Vec<String> =
        changes.iter().map(|(change, files)| format!("{change} ({})", files.join(", "))).collect();
    verdict(&before, &after, &changes, &upgrading).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn what_breaks_an_upgrade_needs_a_new_major_version_and_a_word_about_it() {
    let none: [String; 0] = [];
    let some = ["default: serviceName".to_owned()];
    let notes = "# Upgrading\n\n## 2.0.0\n\nDelete it.\n\n## 0.2.0\n\nDelete it.\n";
    for (before, after, changes, ok) in [
        ("1.2.0", "1.2.0", &none[..], true),
        ("1.2.0", "1.3.0", &some, false),
        ("1.2.0", "2.0.0", &some, true),
        ("1.2.0", "3.0.0", &some, false),
        ("0.1.0", "0.2.0", &some, true),
        ("0.1.0", "0.1.1", &some, false),
        ("0.1.0", "0.3.0", &some, false),
    ] {
        assert_eq!(verdict(before, after, changes, notes).is_ok(), ok, "{before} {after}");
    }
    let field = differences(&json!({"a": 1, "b": 2}), &json!({"a": 1, "b": 3, "c": 4}));
    assert_eq!(field, ["b: 2 -> 3", "c: null -> 4"]);
}

fn verdict(before: &str, after: &str, changes: &[String], upgrading: &str) -> Result<(), String> {
    // Before 1.0 the second number says what breaks.
    let major = |version: &str| {
        let mut parts = version.splitn(3, '.').map(str::to_owned);
        let first = parts.next();
        if first.as_deref() == Some("0") { (first, parts.next()) } else { (first, None) }
    };
    if changes.is_empty() || (major(before) != major(after) && upgrading.contains(&format!("\n## {after}\n")))
    {
        return Ok(());
    }
    Err(format!(
        "from {before} to {after} nobody can upgrade without more: raise the major version (before 1.0, the minor one) \
         and say in UPGRADING.md under '## {after}' what to do\n{}",
        changes.join("\n")
    ))
}

/// Everything that an upgrade can't change, and the names that hold the data.
fn immutable(rendered: &Rendered) -> Value {
    let mut fields: BTreeMap<String, Value> = rendered
        .set()
        .as_object()
        .unwrap()
        .iter()
        .filter(|(field, _)| !MUTABLE.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    fields.insert("name".into(), text(&rendered.one("StatefulSet", "")["metadata"]["name"]).into());
    let claims = list(&rendered.pod()["volumes"]).iter().filter(|v| !v["persistentVolumeClaim"].is_null());
    fields.extend(claims.map(|v| (format!("volume {}", v["name"]), v["persistentVolumeClaim"].clone())));
    serde_json::to_value(fields).unwrap()
}

fn differences(before: &Value, after: &Value) -> Vec<String> {
    let all = before.as_object().into_iter().chain(after.as_object()).flatten();
    let fields: BTreeSet<&String> = all.map(|(field, _)| field).collect();
    let changed = fields.into_iter().filter(|field| before[field.as_str()] != after[field.as_str()]);
    changed.map(|field| format!("{field}: {} -> {}", before[field], after[field])).collect()
}

fn version(chart: &Path) -> String {
    let chart: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart.join("Chart.yaml")).unwrap()).unwrap();
    text(&chart["version"]).to_owned()
}

//! What Helm itself says: lint, package, and a dry run of an installation with the notes that it prints.

use std::{fs, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::helm::{CHART, Helm, in_parallel, list, value_files};

#[test]
fn lint_finds_nothing() {
    for helm in Helm::all() {
        in_parallel(&value_files(), |(name, values)| {
            let linted = helm.run(&["lint", "--strict", "--quiet", CHART, "--values", "-"], values);
            linted.unwrap_or_else(|e| panic!("helm {}: {name}: {e}", helm.major));
        });
    }
}

#[test]
fn a_package_holds_what_a_user_needs_and_nothing_else() {
    for helm in Helm::all() {
        let dir = TempDir::new().unwrap();
        helm.run(&["package", CHART, "--destination", dir.path().to_str().unwrap()], "").unwrap();
        let file = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let output = Command::new("tar").arg("-tzf").arg(&file).output().unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        for needed in [
            "Chart.yaml",
            "values.yaml",
            "values.schema.json",
            "values-minimal.yaml",
            "README.md",
            "UPGRADING.md",
            "CHANGELOG.md",
            "LICENSE",
            "templates/NOTES.txt",
            "templates/tests/pod.yaml",
        ] {
            assert!(names.lines().any(|n| n == format!("toolpulse/{needed}")), "no {needed} in {names}");
        }
        assert!(!names.contains("/ci/"), "{names}");
        // The package is what is installed: it renders as the directory does.
        let packed = helm.text_of(file.to_str().unwrap(), "rel", &[], "").unwrap();
        assert_eq!(packed, helm.text_of(CHART, "rel", &[], "").unwrap());
    }
}

#[test]
fn a_dry_run_of_the_installation_tells_how_to_make_the_first_call() {
    for helm in Helm::all() {
        let install = |values: &str| helm.dry_run("agents", values);
        let default = install("");
        for part in [
            "rel-toolpulse.agents.svc:50051",
            "kubectl --namespace agents port-forward service/rel-toolpulse 50051:50051",
            "toolpulse tools list --all --server 127.0.0.1:50051",
            "grpcurl -plaintext",
            "helm test rel --namespace agents",
            "There is no\npublic image",
            "data-rel-toolpulse-0 outlives the release",
        ] {
            assert!(default.contains(part), "helm {}: no '{part}' in {default}", helm.major);
        }
        for (values, there, absent) in [
            ("{store: {type: memory}}", "registrations and policies are lost", "data-rel-toolpulse-0"),
            ("{image: {registry: r.example.com}}", "first call", "public image"),
            ("{service: {port: 80}, tests: {enabled: false}}", "50051:80", "helm test"),
            ("{probing: {egress: strict}}", "public addresses only", "everything but"),
            ("{networkPolicy: {enabled: false}}", "first call", "networkPolicy"),
            ("{ingress: {enabled: true, hosts: [a.b]}}", "stream that stays open", "\n\n\n\n"),
            (
                "{store: {sqlite: {retention: {whenDeleted: Delete}}}}",
                "is deleted with the release",
                "outlives",
            ),
        ] {
            let notes = install(values);
            let notes = notes.split_once("\nNOTES:\n").unwrap().1;
            assert!(notes.contains(there) && !notes.contains(absent), "{values}: {notes}");
        }
    }
}

#[test]
fn the_chart_speaks_of_the_server_that_it_goes_with() {
    let chart: Value =
        serde_saphyr::from_str(&fs::read_to_string(format!("{CHART}/Chart.yaml")).unwrap()).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["annotations"]["artifacthub.io/license"], env!("CARGO_PKG_LICENSE"));
    assert_eq!(fs::read(format!("{CHART}/LICENSE")).unwrap(), include_bytes!("../../LICENSE"));
    let changes: Value =
        serde_saphyr::from_str(chart["annotations"]["artifacthub.io/changes"].as_str().unwrap()).unwrap();
    assert!(!list(&changes).is_empty());
    let version = chart["version"].as_str().unwrap();
    for file in ["CHANGELOG.md", "UPGRADING.md"] {
        let text = fs::read_to_string(format!("{CHART}/{file}")).unwrap();
        assert!(text.contains(&format!("\n## {version}\n")), "{file} has nothing about {version}");
    }
}

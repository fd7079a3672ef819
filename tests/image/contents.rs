//! What is in the image, and what it says of itself.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use serde_json::{Value, json};
use toolpulse::config::OPTIONS;

use crate::support::{container::Image, skip};

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const MANIFEST: &str = include_str!("../../Cargo.toml");

#[test]
fn it_says_how_it_is_run() {
    let Some(image) = Image::get() else { return };
    assert_eq!(image.user(), (65532, 65532));
    assert_eq!(
        (image.texts("Entrypoint"), image.texts("Cmd")),
        (vec!["toolpulse".to_owned()], vec!["serve".to_owned()])
    );
    assert_eq!(image.config["Volumes"], json!({"/data": {}}));
    assert_eq!(image.config["ExposedPorts"], json!({"50051/tcp": {}, "9091/tcp": {}}));
    assert_eq!(image.config["StopSignal"], "SIGTERM");
    assert_eq!(image.config["Healthcheck"]["Test"], json!(["CMD", "toolpulse", "healthcheck"]));
    for (name, _) in image.env() {
        let ours = OPTIONS.iter().any(|option| option.variable == name);
        assert!(ours || ["PATH", "TMPDIR"].contains(&name.as_str()), "{name} sets nothing");
    }
    for listens in ["TOOLPULSE_LISTEN=0.0.0.0:50051", "TOOLPULSE_ADMIN_LISTEN=0.0.0.0:9091"] {
        assert!(image.texts("Env").contains(&listens.to_owned()), "{listens}");
    }
}

#[test]
fn its_labels_tell_where_it_comes_from() {
    let Some(image) = Image::get() else { return };
    let labels = &image.config["Labels"];
    for (label, value) in [
        ("title", "Toolpulse"),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        // The default of the argument; the others are what tests/image/build gave.
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", "0123456789abcdef"),
        ("created", "2026-01-02T03:04:05Z"),
        ("source", "https://example.com/toolpulse"),
    ] {
        assert_eq!(labels[format!("org.opencontainers.image.{label}")], value, "{label}");
    }
}

#[test]
fn nothing_is_in_it_but_the_program_and_its_papers() {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, (u32, u32)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if about.is_dir() {
                walk(root, &path, found);
            }
            if !about.is_dir() || about.uid() != 0 {
                assert_eq!(about.uid(), about.gid(), "{name}");
                found.insert(name, (about.permissions().mode() & 0o7777, about.uid()));
            }
        }
    }
    let Some(image) = Image::get() else { return };
    let mut found = BTreeMap::new();
    walk(&image.root(), &image.root(), &mut found);
    let expected = [
        ("data", (0o700, 65532)),
        ("usr/local/bin/toolpulse", (0o755, 0)),
        ("usr/share/doc/toolpulse/LICENSE", (0o644, 0)),
        ("usr/share/doc/toolpulse/sbom.cdx.json", (0o644, 0)),
    ];
    assert_eq!(found, BTreeMap::from(expected.map(|(name, about)| (name.to_owned(), about))));
}

/// ELF's program headers: one with an interpreter, or a library that is needed, could not run there.
#[test]
fn the_program_needs_no_library() {
    const INTERPRETER: u64 = 3;
    const DYNAMIC: u64 = 2;
    const NEEDED: u64 = 1;
    let Some(image) = Image::get() else { return };
    let program = fs::read(image.root().join("usr/local/bin/toolpulse")).unwrap();
    let number = |at: usize, bytes: usize| {
        program[at..at + bytes].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    let place = |at: usize, bytes: usize| usize::try_from(number(at, bytes)).unwrap();
    assert_eq!(program[..6], *b"\x7fELF\x02\x01", "64 bits, little-endian");
    let (start, size, count) = (place(32, 8), place(54, 2), place(56, 2));
    for header in (0..count).map(|n| start + n * size) {
        let kind = number(header, 4);
        assert_ne!(kind, INTERPRETER, "it has an interpreter");
        if kind == DYNAMIC {
            let (at, length) = (place(header + 8, 8), place(header + 32, 8));
            assert!(
                (at..at + length).step_by(16).all(|entry| number(entry, 8) != NEEDED),
                "it needs a library"
            );
        }
    }
    // The public certificate authorities are in it: a probe over TLS needs no file either.
    let root = b"ISRG Root X1";
    assert!(program.windows(root.len()).any(|bytes| bytes == root), "no certificate authorities");
}

#[test]
fn the_bill_of_materials_names_every_dependency() {
    let Some(image) = Image::get() else { return };
    let text = fs::read(image.root().join("usr/share/doc/toolpulse/sbom.cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&text).unwrap();
    if bill == json!({}) {
        return skip("sbom", "cargo-cyclonedx is not installed");
    }
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
    let program = &bill["metadata"]["component"];
    assert_eq!(
        (&program["name"], &program["version"]),
        (&json!("toolpulse"), &json!(env!("CARGO_PKG_VERSION")))
    );
    let parts = bill["components"].as_array().unwrap();
    let dependencies = MANIFEST.split("\n[").find_map(|part| part.strip_prefix("dependencies]\n")).unwrap();
    for line in dependencies.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(' ').next().unwrap();
        assert!(parts.iter().any(|part| part["name"] == name), "{name} is not in the bill of materials");
    }
    for part in parts {
        assert!(part["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/")), "{part}");
        assert!(part["licenses"].is_array(), "{part}");
    }
    assert!(
        !String::from_utf8_lossy(&text).contains("proptest"),
        "what only tests use is not in the program"
    );
}

#[test]
fn it_is_built_by_the_toolchain_that_the_manifest_names() {
    let wanted =
        MANIFEST.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    let image = DOCKERFILE.lines().find_map(|line| line.strip_prefix("ARG RUST_IMAGE=")).unwrap();
    assert!(image.contains(&format!("/rust:{wanted}-")), "{image} is not Rust {wanted}");
}

//! What the chart writes is what the server reads: for every file of values, the real binary takes the rendered arguments,
//! environment, settings and manifest, and every one of them arrives.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;
use toolpulse::manifest::{Defaults, Manifest};

use crate::{
    helm::{Helm, Rendered, in_parallel, list, text, value_files},
    support::server::clean_command,
};

#[test]
fn the_server_takes_what_is_rendered() {
    let Some(helm) = Helm::newest() else { return };
    in_parallel(&value_files(), |(name, values)| {
        let rendered = helm.render(values);
        let settings = settings(&rendered).unwrap_or_else(|e| panic!("{name}: {e}"));
        let port = |key: &str| text(&settings[key]["value"]).rsplit_once(':').unwrap().1.to_owned();
        for (port, key) in [(port("listen"), "grpc"), (port("admin_listen"), "admin")] {
            let ports = list(&rendered.container()["ports"]);
            let declared = ports.iter().find(|p| p["name"] == key).unwrap();
            assert_eq!(declared["containerPort"].to_string(), port, "{name}");
        }
        // What the rest of the chart depends on can't be changed by an image's or anybody else's environment.
        for key in ["listen", "admin_listen", "store", "drain_lame_duck", "drain_spread", "drain_grace"] {
            assert_eq!(settings[key]["layer"], "flag", "{name}: {key}");
        }
        for (key, value) in rendered.config().as_object().unwrap() {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
                other => other.to_string(),
            };
            let layer = &settings[key]["layer"];
            let overridden = layer == "flag" || layer == "environment";
            assert!(overridden || settings[key]["value"] == value, "{name}: {key} is {}", settings[key]);
        }
        for map in
            rendered.all("ConfigMap").into_iter().filter(|m| m["metadata"]["name"] == "rel-toolpulse-tools")
        {
            let manifest = text(&map["data"]["tools.yaml"]);
            let manifest = Manifest::parse("tools.yaml", manifest, Defaults::default()).unwrap();
            assert!(!manifest.tools.is_empty(), "{name}");
        }
    });
}

#[test]
fn settings_of_values_arrive() {
    let Some(helm) = Helm::newest() else { return };
    let settings = settings(&helm.render(
        "{probing: {interval: 20s, timeout: 4s, ttl: 70s, grace: 80s, egress: strict, allow: [a.example, 10.0.0.0/8], deny: ['10.0.0.1:22'],
                    canary: 'a.example:1', insecureTls: true, secrets: [{name: a}]},
          tools: [{name: a}], allowedTools: {enabled: true, names: [a], strict: true, wait: 3s},
          log: {level: debug, format: text}, config: {default_policy: deny, max_request_bytes: 1MiB, watch_heartbeat: 9s}}",
    ))
    .unwrap();
    for (key, value) in [
        ("probe_interval", "20s"),
        ("probe_timeout", "4s"),
        ("probe_ttl", "70s"),
        ("probe_grace", "80s"),
        ("probe_egress", "strict"),
        ("probe_allow", "a.example,10.0.0.0/8"),
        ("probe_deny", "10.0.0.1:22"),
        ("probe_canary", "a.example:1"),
        ("probe_insecure_tls", "true"),
        ("secrets_dir", "/etc/toolpulse/secrets"),
        ("manifest", "/etc/toolpulse/manifest/tools.yaml"),
        ("allowlist_var", "ALLOWED_TOOLS"),
        ("strict_wait", "3s"),
        ("log", "debug"),
        ("log_format", "text"),
        ("default_policy", "deny"),
        ("max_request_bytes", "1MiB"),
        ("watch_heartbeat", "9s"),
        ("store", "sqlite"),
        ("data_dir", "/data"),
    ] {
        assert_eq!(settings[key]["value"], value, "{key}");
    }
}

/// The windows that the chart takes are the ones that the server takes.
#[test]
fn chart_and_server_agree_on_windows() {
    let Some(helm) = Helm::newest() else { return };
    let rows = [
        ("{interval: 10s, ttl: 13500ms}", false),
        ("{interval: 10s, ttl: 13501ms}", true),
        ("{interval: 4s, ttl: 6200ms, grace: 6201ms}", false),
        ("{interval: 4s, ttl: 6201ms, grace: 6201ms}", true),
        ("{interval: 1h}", true),
        ("{interval: 1s, timeout: 28950ms}", false),
        ("{interval: 1s, timeout: 28949ms}", true),
    ];
    in_parallel(&rows, |(probing, fine)| {
        assert_eq!(helm.template(&format!("{{probing: {probing}}}")).is_ok(), *fine, "the chart: {probing}");
        let mut probing: Value = serde_saphyr::from_str(probing).unwrap();
        let probing = probing.as_object_mut().unwrap();
        let flags = probing.iter().map(|(key, value)| format!("--probe-{key}={}", text(value)));
        let output = clean_command().args(["config", "print"]).args(flags).output().unwrap();
        assert_eq!(output.status.success(), *fine, "the server: {probing:?}");
    });
}

/// The effective settings, by name, as the server itself sees them.
fn settings(rendered: &Rendered) -> Result<Value, String> {
    let dir = TempDir::new().unwrap();
    let map = rendered.one("ConfigMap", "-config");
    fs::write(dir.path().join("toolpulse.yaml"), text(&map["data"]["toolpulse.yaml"])).unwrap();
    let mut command = clean_command();
    command.args(["config", "print", "--output", "json"]);
    let args = rendered.args();
    assert_eq!(args[0], "serve");
    command
        .args(args[1..].iter().map(|arg| arg.replace("/etc/toolpulse/config", dir.path().to_str().unwrap())));
    for variable in list(&rendered.container()["env"]).iter().filter(|v| v["value"].is_string()) {
        command.env(text(&variable["name"]), text(&variable["value"]));
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    Ok(list(&printed["settings"]).iter().map(|row| (text(&row["name"]).to_owned(), row.clone())).collect())
}

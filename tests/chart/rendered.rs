//! What values do.

use serde_json::{Value, json};

use crate::helm::{Helm, list, named, text, value_files};

#[test]
fn by_default_sqlite_on_a_volume_of_its_own() {
    for helm in Helm::all() {
        let rendered = helm.render("");
        assert!(rendered.args().contains(&"--store=sqlite"));
        assert!(rendered.args().contains(&"--data-dir=/data"));
        assert_eq!(named(&rendered.container()["volumeMounts"], "data")["mountPath"], "/data");
        assert_eq!(list(&rendered.set()["volumeClaimTemplates"]).len(), 1);
        assert_eq!(rendered.set()["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Retain");

        let claimed = helm.render("{store: {sqlite: {existingClaim: kept}}}");
        assert!(claimed.set()["volumeClaimTemplates"].is_null());
        assert_eq!(named(&claimed.pod()["volumes"], "data")["persistentVolumeClaim"]["claimName"], "kept");

        let memory = helm.render("{store: {type: memory}}");
        assert!(memory.set()["volumeClaimTemplates"].is_null());
        assert!(!memory.container().to_string().contains("/data"), "{}", memory.container());
    }
}

/// Unset, empty and named are three things for Kubernetes.
#[test]
fn a_storage_class_is_unset_empty_or_named() {
    let Some(helm) = Helm::newest() else { return };
    for (values, class) in [
        ("{}", Value::Null),
        ("{store: {sqlite: {storageClassName: ''}}}", json!("")),
        ("{store: {sqlite: {storageClassName: fast}}}", json!("fast")),
    ] {
        let rendered = helm.render(values);
        let claim = &rendered.set()["volumeClaimTemplates"][0]["spec"];
        assert_eq!(claim["storageClassName"], class, "{values}");
        assert_eq!(claim.as_object().unwrap().contains_key("storageClassName"), !class.is_null(), "{values}");
    }
}

#[test]
fn the_pod_is_hardened() {
    for helm in Helm::all() {
        let rendered = helm.render("");
        for pod in [rendered.pod(), &rendered.one("Pod", "-test")["spec"]] {
            assert_eq!(pod["automountServiceAccountToken"], false);
            assert_eq!(pod["enableServiceLinks"], false);
            let context = &pod["securityContext"];
            for (key, value) in
                [("runAsNonRoot", json!(true)), ("runAsUser", json!(65532)), ("fsGroup", json!(65532))]
            {
                assert_eq!(context[key], value, "{key}");
            }
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
            for container in list(&pod["containers"]).iter().chain(list(&pod["initContainers"])) {
                assert_eq!(
                    container["securityContext"],
                    json!({
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "privileged": false,
                        "capabilities": {"drop": ["ALL"]},
                    })
                );
                assert!(!container["resources"]["limits"]["memory"].is_null());
                assert!(container["resources"]["limits"]["cpu"].is_null());
            }
        }
    }
}

/// preStop, lame duck, spread, grace and margin, rounded up to whole seconds.
#[test]
fn the_grace_period_holds_the_whole_shutdown() {
    let Some(helm) = Helm::newest() else { return };
    for (shutdown, seconds) in [
        ("{}", 5 + 3 + 10 + 5),
        ("{lameDuck: 1500ms}", 5 + 2 + 3 + 10 + 5),
        ("{lameDuck: 1500ms, spread: 1500ms}", 5 + 3 + 10 + 5),
        ("{grace: 1m30s, preStopSeconds: 20, marginSeconds: 10}", 20 + 3 + 90 + 10),
        ("{grace: 1m 30s}", 5 + 3 + 90 + 5),
        ("{grace: 1h, spread: 010s}", 5 + 10 + 3600 + 5),
        ("{preStopSeconds: 0, spread: 0s, grace: 0ms, marginSeconds: 2}", 2),
    ] {
        let rendered = helm.render(&format!("{{shutdown: {shutdown}}}"));
        assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], seconds, "{shutdown}");
    }
    let rendered = helm.render("");
    assert_eq!(rendered.container()["lifecycle"], json!({"preStop": {"sleep": {"seconds": 5}}}));
    for flag in ["--drain-lame-duck=0s", "--drain-spread=3s", "--drain-grace=10s"] {
        assert!(rendered.args().contains(&flag), "{:?}", rendered.args());
    }
}

#[test]
fn an_image_is_named_by_its_digest_or_its_tag() {
    let Some(helm) = Helm::newest() else { return };
    let digest = format!("sha256:{}", "0".repeat(64));
    for (image, name) in [
        ("{}".to_owned(), concat!("toolpulse:", env!("CARGO_PKG_VERSION")).to_owned()),
        (
            "{registry: 'r.example:5000', repository: a/b, tag: t}".to_owned(),
            "r.example:5000/a/b:t".to_owned(),
        ),
        (format!("{{tag: t, digest: '{digest}'}}"), format!("toolpulse@{digest}")),
    ] {
        let rendered = helm.render(&format!("{{image: {image}}}"));
        assert_eq!(rendered.container()["image"], name);
        assert!(!rendered.one("StatefulSet", "")["metadata"]["labels"].to_string().contains("sha256"));
    }
}

#[test]
fn config_is_merged_over_the_values() {
    for helm in Helm::all() {
        let config = helm.render("").config();
        let default = json!({
            "allow_plaintext": true, "log": "info", "log_format": "json", "probe_egress": "cluster", "probe_insecure_tls": false, "probe_interval": "10s",
        });
        assert_eq!(config, default);
        let values = "{probing: {interval: 30s, ttl: 2m}, config: {probe_interval: 20s, max_watches: 1000000, probe_grace: null}}";
        let config = helm.render(values).config();
        assert_eq!(config["probe_interval"], "20s");
        assert_eq!(config["probe_ttl"], "2m");
        assert_eq!(config["max_watches"], 1_000_000);
        assert!(!config.as_object().unwrap().contains_key("probe_grace"));
    }
}

/// A new file of settings needs a new process; a new manifest is followed by the running one.
#[test]
fn the_pod_restarts_for_settings_and_not_for_tools() {
    let Some(helm) = Helm::newest() else { return };
    let template = |values: &str| helm.render(values).set()["template"].clone();
    assert_ne!(template("{}"), template("{config: {max_watches: 5}}"));
    assert_eq!(template("{tools: [{name: a}]}"), template("{tools: [{name: b}]}"));
    assert_eq!(template("{}"), template("{commonLabels: {}}"));
}

#[test]
fn tools_reach_the_server_as_they_are() {
    for helm in Helm::all() {
        let given = "owner: a\ntools:\n- name: x # {{ no template }}\n  input_schema: {\"b\": 1.0, \"a\": 12345678901234567890}\n";
        let values = json!({"tools": given}).to_string();
        let rendered = helm.render(&values);
        assert_eq!(rendered.one("ConfigMap", "-tools")["data"]["tools.yaml"], given);
        assert!(rendered.args().contains(&"--manifest=/etc/toolpulse/manifest/tools.yaml"));
        assert_eq!(named(&rendered.pod()["volumes"], "manifest")["configMap"]["name"], "rel-toolpulse-tools");
        // A mounted file, unlike a directory, never changes.
        assert!(named(&rendered.container()["volumeMounts"], "manifest")["subPath"].is_null());

        let rendered =
            helm.render("{tools: [{name: x, input_schema: {maximum: 1000000, pattern: '^{{ a }}$'}}]}");
        let manifest: Value =
            serde_json::from_str(text(&rendered.one("ConfigMap", "-tools")["data"]["tools.yaml"])).unwrap();
        assert_eq!(
            manifest["tools"][0]["input_schema"],
            json!({"maximum": 1_000_000, "pattern": "^{{ a }}$"})
        );

        let rendered = helm.render("{toolsFrom: {configMap: mine, key: k.json}}");
        assert_eq!(
            named(&rendered.pod()["volumes"], "manifest")["configMap"],
            json!({"name": "mine", "items": [{"key": "k.json", "path": "tools.yaml"}]})
        );
        assert!(helm.render("").args().iter().all(|arg| !arg.starts_with("--manifest")));
    }
}

#[test]
fn secrets_of_probes_are_files_and_never_values() {
    let Some(helm) = Helm::newest() else { return };
    let rendered = helm.render("{probing: {secrets: [{name: a}, {name: b, optional: true}]}}");
    assert!(rendered.args().contains(&"--secrets-dir=/etc/toolpulse/secrets"));
    assert_eq!(named(&rendered.container()["volumeMounts"], "secrets")["readOnly"], true);
    let sources = &named(&rendered.pod()["volumes"], "secrets")["projected"]["sources"];
    assert_eq!(sources, &json!([{"secret": {"name": "a"}}, {"secret": {"name": "b", "optional": true}}]));
    for (name, values) in value_files() {
        assert!(helm.render(&values).all("Secret").is_empty(), "{name}");
    }
}

#[test]
fn an_allowlist_reaches_the_environment() {
    let Some(helm) = Helm::newest() else { return };
    let env = |values: &str| {
        let rendered = helm.render(values);
        let all: Vec<(String, String)> = list(&rendered.container()["env"])
            .iter()
            .map(|e| (text(&e["name"]).to_owned(), text(&e["value"]).to_owned()))
            .collect();
        // Whatever extraEnvFrom brings, this variable is the one that is read.
        assert_eq!(!all.is_empty(), rendered.args().contains(&"--allowlist-var=ALLOWED_TOOLS"));
        all
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(env(""), []);
    assert_eq!(env("{allowedTools: {enabled: true, names: [a, n/b]}}"), [pair("ALLOWED_TOOLS", "a,n/b")]);
    assert_eq!(
        env("{allowedTools: {enabled: true, names: [a], strict: true}}"),
        [pair("ALLOWED_TOOLS", "a"), pair("CI", "true")]
    );
}

#[test]
fn templates_in_values_are_expanded() {
    let Some(helm) = Helm::newest() else { return };
    let rendered = helm.render(
        "{commonLabels: {l: '{{ .Release.Name }}'}, commonAnnotations: {a: '{{ 1 }}'}, podLabels: {p: '{{ .Release.Name }}'},
          extraArgs: ['--log={{ .Values.log.level }}'], extraEnv: [{name: A, value: '{{ .Chart.Name }}'}],
          extraObjects: ['{kind: A, metadata: {name: \"{{ .Release.Name }}\"}}', {kind: B, metadata: {name: '{{ .Release.Name }}'}}]}",
    );
    for object in rendered.0.iter().filter(|o| o["kind"] != "A" && o["kind"] != "B") {
        assert_eq!(object["metadata"]["labels"]["l"], "rel", "{object}");
        assert_eq!(object["metadata"]["annotations"]["a"], "1", "{object}");
    }
    assert_eq!(rendered.set()["template"]["metadata"]["labels"]["p"], "rel");
    assert!(rendered.args().contains(&"--log=info"));
    assert_eq!(named(&rendered.container()["env"], "A")["value"], "toolpulse");
    for kind in ["A", "B"] {
        assert_eq!(rendered.one(kind, "rel")["metadata"]["name"], "rel");
    }
    let claim = &rendered.set()["volumeClaimTemplates"][0]["metadata"];
    assert!(claim["labels"]["l"].is_null(), "a claim's labels are immutable: {claim}");
}

#[test]
fn a_route_leads_to_the_service() {
    let Some(helm) = Helm::newest() else { return };
    let rendered = helm.render(
        "{service: {port: 80}, grpcRoute: {enabled: true, parentRefs: [{name: gw}], hostnames: [a.b]}}",
    );
    let route = &rendered.one("GRPCRoute", "")["spec"];
    assert_eq!(route["rules"], json!([{"backendRefs": [{"name": "rel-toolpulse", "port": 80}]}]));
    let port = &rendered.one("Service", "rel-toolpulse")["spec"]["ports"][0];
    assert_eq!((&port["port"], &port["targetPort"]), (&json!(80), &json!("grpc")));
    let headless = &rendered.one("Service", "-headless")["spec"];
    assert_eq!((&headless["clusterIP"], &headless["ports"][0]["port"]), (&json!("None"), &json!(50051)));
}

#[test]
fn values_of_a_parent_chart_are_no_error() {
    for helm in Helm::all() {
        assert_eq!(helm.render("{global: {a: b}, enabled: true}").0, helm.render("").0);
    }
}

/// A policy that were narrower than the server's own guard would make targets dead that were allowed.
#[test]
fn the_policy_lets_probes_go_where_the_server_does() {
    for helm in Helm::all() {
        for (values, private) in [
            ("{}", true),
            ("{probing: {egress: strict}}", false),
            ("{probing: {egress: strict, allow: [10.0.0.0/8]}}", true),
            ("{config: {probe_egress: strict}}", false),
            ("{config: {probe_egress: strict, probe_allow: tools.internal}}", true),
            ("{probing: {egress: strict}, config: {probe_egress: cluster}}", true),
        ] {
            let rendered = helm.render(values);
            let to = &rendered.one("NetworkPolicy", "")["spec"]["egress"][1]["to"];
            assert_eq!(list(to).contains(&json!({"namespaceSelector": {}})), private, "{values}");
            assert_eq!(!to.to_string().contains("10.0.0.0/8"), private, "{values}");
            assert!(to.to_string().contains("169.254.0.0/16"), "{values}");
        }
    }
}

/// A namespace may be called 1234, and a class `true`.
#[test]
fn texts_that_look_like_something_else_stay_texts() {
    let Some(helm) = Helm::newest() else { return };
    let values = json!({
        "fullnameOverride": "null", "namespaceOverride": "1234", "nameOverride": "on", "commonLabels": {"a": "1"},
        "priorityClassName": "1", "runtimeClassName": "true", "schedulerName": "1.5", "serviceAccount": {"name": "12"},
        "service": {"type": "LoadBalancer", "appProtocol": "0x1", "loadBalancerClass": "1e3"},
        "store": {"sqlite": {"storageClassName": "0", "existingClaim": ""}},
        "ingress": {"enabled": true, "className": "yes", "hosts": ["1.2"]},
        "grpcRoute": {"enabled": true, "parentRefs": [{"name": "1"}], "hostnames": ["1.2"]},
        "config": {"log": "on"}, "extraArgs": ["1"], "extraEnv": [{"name": "A", "value": "1"}],
    });
    let rendered = helm.render(&values.to_string());
    for object in &rendered.0 {
        assert_eq!(object["metadata"]["namespace"], "1234", "{object}");
        assert_eq!(object["metadata"]["labels"]["a"], "1", "{object}");
    }
    let (pod, service) = (rendered.pod(), &rendered.one("Service", "null")["spec"]);
    for (value, expected) in [
        (&pod["priorityClassName"], "1"),
        (&pod["runtimeClassName"], "true"),
        (&pod["schedulerName"], "1.5"),
        (&pod["serviceAccountName"], "12"),
        (&rendered.one("ServiceAccount", "")["metadata"]["name"], "12"),
        (&service["ports"][0]["appProtocol"], "0x1"),
        (&service["loadBalancerClass"], "1e3"),
        (&rendered.set()["volumeClaimTemplates"][0]["spec"]["storageClassName"], "0"),
        (&rendered.set()["selector"]["matchLabels"]["app.kubernetes.io/name"], "on"),
        (&rendered.one("Ingress", "")["spec"]["ingressClassName"], "yes"),
        (&rendered.one("Ingress", "")["spec"]["rules"][0]["host"], "1.2"),
        (&rendered.one("GRPCRoute", "")["spec"]["parentRefs"][0]["name"], "1"),
        (&rendered.config()["log"], "on"),
        (&named(&rendered.container()["env"], "A")["value"], "1"),
    ] {
        assert_eq!(value, expected);
    }
}

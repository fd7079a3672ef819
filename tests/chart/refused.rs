//! Values that are wrong: each is refused, and the message names the key.

use serde_json::{Map, Value, json};

use crate::helm::{Helm, in_parallel};

#[test]
fn contradictions_are_named() {
    let Some(helm) = Helm::newest() else { return };
    // Values, and what the message names.
    let rows: &[(&str, &[&str])] = &[
        ("{config: {listen: '0.0.0.0:1'}}", &["config.listen", "server.grpc.port"]),
        ("{config: {admin_listen: '0.0.0.0:1'}}", &["config.admin_listen", "server.admin.port"]),
        ("{config: {store: memory}}", &["config.store", "store.type"]),
        ("{config: {data_dir: /x}}", &["config.data_dir", "store.sqlite"]),
        ("{config: {manifest: /x}}", &["config.manifest", "tools"]),
        ("{config: {secrets_dir: /x}}", &["config.secrets_dir", "probing.secrets"]),
        ("{config: {drain_grace: 1h}}", &["config.drain_grace", "shutdown.grace"]),
        ("{extraArgs: ['--listen=0.0.0.0:1']}", &["extraArgs", "--listen", "server.grpc.port"]),
        ("{extraArgs: [--drain-grace, 1h]}", &["extraArgs", "--drain-grace", "shutdown.grace"]),
        (
            "{extraEnv: [{name: TOOLPULSE_STORE, value: memory}]}",
            &["extraEnv", "TOOLPULSE_STORE", "store.type"],
        ),
        ("{extraEnv: [{name: TOOLPULSE_CONFIG, value: /x}]}", &["extraEnv", "TOOLPULSE_CONFIG", "config"]),
        ("{extraArgs: [--config=/x]}", &["extraArgs", "--config", "config"]),
        ("{probing: {ttl: 10s}}", &["probing.ttl", "10000ms", "13500ms"]),
        (
            "{probing: {interval: 1m}, config: {probe_grace: 90s, probe_timeout: 27s}}",
            &["probing.grace", "90000ms"],
        ),
        ("{probing: {interval: 20s, timeout: 40s}}", &["probing.ttl", "probing.grace", "60000ms", "61000ms"]),
        ("{probing: {interval: 500ms}}", &["probing.interval", "1s to 1h"]),
        ("{probing: {interval: 61m, ttl: 10h, grace: 10h}}", &["probing.interval", "1s to 1h"]),
        ("{allowedTools: {enabled: true}}", &["allowedTools.enabled", "allowedTools.names"]),
        ("{allowedTools: {names: [a]}}", &["allowedTools.names", "allowedTools.enabled"]),
        ("{allowedTools: {strict: true}}", &["allowedTools.strict", "allowedTools.enabled"]),
        (
            "{allowedTools: {enabled: true, names: [a], wait: 1s}}",
            &["allowedTools.wait", "allowedTools.strict"],
        ),
        (
            "{allowedTools: {enabled: true, names: [a]}, config: {allowlist_var: MINE}}",
            &["config.allowlist_var", "allowedTools"],
        ),
        ("{tools: [{name: a}], toolsFrom: {configMap: b}}", &["tools", "toolsFrom.configMap"]),
        (
            "{store: {type: memory, sqlite: {existingClaim: a}}}",
            &["store.sqlite.existingClaim", "store.type"],
        ),
        ("{server: {admin: {port: 50051}}}", &["server.grpc.port", "server.admin.port", "50051"]),
        ("{extraContainers: [{name: toolpulse}]}", &["extraContainers", "toolpulse", "twice"]),
        ("{initContainers: [{name: a}], extraContainers: [{name: a}]}", &["initContainers", "twice"]),
        ("{extraVolumeMounts: [{name: a, mountPath: /data}]}", &["extraVolumeMounts", "/data", "twice"]),
        ("{service: {nodePort: 30000}}", &["service.nodePort", "service.type"]),
        ("{service: {externalTrafficPolicy: Local}}", &["service.externalTrafficPolicy"]),
        ("{service: {type: NodePort, loadBalancerClass: a}}", &["service.loadBalancerClass"]),
        ("{grpcRoute: {enabled: true}}", &["grpcRoute.enabled", "grpcRoute.parentRefs"]),
        ("{ingress: {enabled: true}}", &["ingress.enabled", "ingress.hosts"]),
        ("{commonLabels: {app.kubernetes.io/name: x}}", &["commonLabels", "app.kubernetes.io/name"]),
        ("{ingress: {labels: {helm.sh/chart: x}}}", &["ingress.labels", "helm.sh/chart"]),
        ("{shutdown: {grace: 61m}}", &["shutdown.grace", "61m", "1h"]),
        ("{allowedTools: {enabled: true, names: [a], strict: true, wait: 2h}}", &["allowedTools.wait", "1h"]),
        ("{podLabels: {app.kubernetes.io/instance: x}}", &["podLabels", "app.kubernetes.io/instance"]),
        ("{podLabels: {a: '{{ printf \"%c\" 39 }}'}}", &["map of texts"]),
    ];
    let wrong = in_parallel(rows, |(values, names)| {
        let message = helm.refusal(values);
        let missing: Vec<_> = names.iter().filter(|name| !message.contains(**name)).collect();
        (!missing.is_empty()).then(|| format!("{values}: no {missing:?} in {message}"))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Limits of Kubernetes and Linux that would show only when the pod does not start.
#[test]
fn what_is_too_large_is_told_before() {
    let Some(helm) = Helm::newest() else { return };
    let names: Vec<String> = (0..2_000).map(|i| format!("{i:0>80}")).collect();
    let message = helm.refusal(&json!({"allowedTools": {"enabled": true, "names": names}}).to_string());
    assert!(message.contains("allowedTools.names are 161999 bytes"), "{message}");
    let tools = format!("tools: [] # {}", "x".repeat(1_000_000));
    let message = helm.refusal(&json!({"tools": tools}).to_string());
    assert!(message.contains("tools are 1000012 bytes, and a ConfigMap holds 1 MiB"), "{message}");
}

/// One message for all that is wrong: nobody wants to be told of one thing a time.
#[test]
fn all_contradictions_are_told_at_once() {
    for helm in Helm::all() {
        let message = helm.refusal(
            "{replicaCount: 3, autoscaling: {enabled: true}, config: {listen: x}, allowedTools: {enabled: true}, grpcRoute: {enabled: true}}",
        );
        for part in [
            "replicaCount is 3",
            "autoscaling (enabled)",
            "config.listen",
            "allowedTools.names",
            "grpcRoute.parentRefs",
        ] {
            assert!(message.contains(part), "helm {}: no {part} in {message}", helm.major);
        }
        assert_eq!(message.lines().filter(|l| l.starts_with("- ")).count(), 5, "{message}");
    }
}

/// Wrong types, nulls, empty texts, numbers out of bounds, misspelt keys: each is an error of the schema that names the key,
/// never one of a template.
#[test]
fn wrong_types_are_refused_by_the_schema() {
    let rows: &[(&str, &str)] = &[
        ("{replicaCount: '1'}", "replicaCount"),
        ("{replicaCount: -1}", "replicaCount"),
        ("{replicaCount: 1.5}", "replicaCount"),
        ("{replicaCount: null}", "replicaCount"),
        ("{replicas: 1}", "replicas"),
        ("{image: x}", "image"),
        ("{image: null}", "image"),
        ("{image: {tag: 1.5}}", "tag"),
        ("{image: {tag: 'a b'}}", "tag"),
        ("{image: {digest: sha256:abc}}", "digest"),
        ("{image: {repository: ''}}", "repository"),
        ("{image: {repository: 'UPPER'}}", "repository"),
        ("{image: {pullPolicy: Sometimes}}", "pullPolicy"),
        ("{store: {type: postgres}}", "type"),
        ("{store: {type: null}}", "type"),
        ("{store: null}", "store"),
        ("{store: {sqlite: {size: 1 GB}}}", "size"),
        ("{store: {sqlite: {accessModes: []}}}", "accessModes"),
        ("{server: {address: 127.0.0.1}}", "address"),
        ("{server: {grpc: {port: 0}}}", "port"),
        ("{server: {grpc: {port: 65536}}}", "port"),
        ("{server: {grpc: {port: '50051'}}}", "port"),
        ("{server: {grpc: null}}", "grpc"),
        ("{tools: {name: a}}", "tools"),
        ("{tools: [a]}", "tools"),
        ("{probing: {interval: 10}}", "interval"),
        ("{probing: {interval: ''}}", "interval"),
        ("{probing: {interval: 10 seconds}}", "interval"),
        ("{probing: {interval: -1s}}", "interval"),
        ("{probing: {egress: open}}", "egress"),
        ("{probing: {allow: a.example}}", "allow"),
        ("{probing: {secrets: [{token: abc}]}}", "secrets"),
        ("{probing: {secrets: [abc]}}", "secrets"),
        ("{allowedTools: {enabled: 'yes'}}", "enabled"),
        ("{allowedTools: {enabled: true, names: ['a,b']}}", "names"),
        ("{allowedTools: {enabled: true, names: ['']}}", "names"),
        ("{allowedTools: {enabled: true, names: a}}", "names"),
        ("{log: {format: xml}}", "format"),
        ("{log: {level: ''}}", "level"),
        ("{shutdown: {preStopSeconds: 5s}}", "preStopSeconds"),
        ("{shutdown: {grace: 10}}", "grace"),
        ("{shutdown: {marginSeconds: 0}}", "marginSeconds"),
        ("{shutdown: null}", "shutdown"),
        ("{config: {max_watchs: 1}}", "max_watchs"),
        ("{config: {max_watches: many}}", "max_watches"),
        ("{config: {server: x}}", "server"),
        ("{config: null}", "config"),
        ("{config: []}", "config"),
        ("{probes: {liveness: {periodSeconds: 0}}}", "periodSeconds"),
        ("{probes: {liveness: {httpGet: {}}}}", "httpGet"),
        ("{probes: {readiness: {timeoutSeconds: 0.5}}}", "timeoutSeconds"),
        ("{service: {type: ExternalName}}", "type"),
        ("{service: {port: 80, nodePort: x}}", "nodePort"),
        ("{service: {ipFamilies: IPv4}}", "ipFamilies"),
        ("{service: {annotations: {a: 1}}}", "annotations"),
        ("{podAnnotations: {a: true}}", "podAnnotations"),
        ("{nodeSelector: {a: 1}}", "nodeSelector"),
        ("{grpcRoute: {enabled: true, parentRefs: [gw]}}", "parentRefs"),
        ("{ingress: {hosts: [{host: a}]}}", "hosts"),
        ("{networkPolicy: {grpcFrom: {}}}", "grpcFrom"),
        ("{podDisruptionBudget: {maxUnavailable: 101%}}", "maxUnavailable"),
        ("{podDisruptionBudget: {maxUnavailable: -1}}", "maxUnavailable"),
        ("{extraEnv: {A: b}}", "extraEnv"),
        ("{extraEnv: [{value: b}]}", "extraEnv"),
        ("{extraEnv: [{name: A, value: 1}]}", "extraEnv"),
        ("{extraArgs: --log=debug}", "extraArgs"),
        ("{extraVolumes: [{emptyDir: {}}]}", "extraVolumes"),
        ("{extraObjects: {}}", "extraObjects"),
        ("{nameOverride: Upper}", "nameOverride"),
        ("{fullnameOverride: 1a}", "fullnameOverride"),
        ("{fullnameOverride: a-name-that-is-longer-than-a-statefulset-s-may-ever-be}", "fullnameOverride"),
        ("{tls: {enabled: true}}", "tls"),
        ("{auth: {mode: none}}", "auth"),
        ("{metrics: {enabled: true}}", "metrics"),
    ];
    for helm in Helm::all() {
        // Their validators differ, so both are asked; one of them for each row is enough.
        let rows: Vec<_> = rows
            .iter()
            .enumerate()
            .filter(|(i, _)| i % 2 == usize::from(helm.major % 2))
            .map(|(_, row)| row)
            .collect();
        let wrong = in_parallel(&rows, |(values, key)| {
            let message = helm.refusal(values);
            let ok = message.contains("don't meet the specifications of the schema") && message.contains(key);
            (!ok).then(|| format!("helm {}: {values}: {message}", helm.major))
        });
        let wrong: Vec<String> = wrong.into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// What may go may be set to null, which is how Helm's users remove a default.
#[test]
fn what_may_go_may_be_null() {
    let sections = [
        (
            "service",
            "labels annotations ipFamilyPolicy ipFamilies externalTrafficPolicy loadBalancerClass loadBalancerSourceRanges",
        ),
        ("headlessService", "labels annotations"),
        ("networkPolicy", "labels annotations grpcFrom adminFrom probeTo extraIngress extraEgress"),
        ("podDisruptionBudget", "labels annotations"),
        ("serviceAccount", "name labels annotations"),
        ("tests", "labels annotations resources"),
    ];
    let top = "imagePullSecrets nameOverride fullnameOverride namespaceOverride commonLabels commonAnnotations tools \
               podSecurityContext securityContext resources podLabels podAnnotations nodeSelector tolerations affinity \
               topologySpreadConstraints priorityClassName runtimeClassName schedulerName hostAliases dnsPolicy dnsConfig \
               extraArgs extraEnv extraEnvFrom extraVolumes extraVolumeMounts initContainers extraContainers extraObjects";
    let nulls = |keys: &str| -> Value {
        keys.split_whitespace().map(|key| (key.to_owned(), Value::Null)).collect::<Map<_, _>>().into()
    };
    let mut values = nulls(top);
    for (section, keys) in sections {
        values[section] = nulls(keys);
    }
    values["store"] = json!({"sqlite": {"labels": null, "annotations": null, "storageClassName": null}});
    values["grpcRoute"] = json!({"enabled": true, "parentRefs": [{"name": "a"}], "labels": null, "annotations": null,
        "hostnames": null, "matches": null, "filters": null});
    values["ingress"] = json!({"enabled": true, "hosts": ["a.b"], "className": null, "labels": null, "annotations": null,
        "tls": null});
    for helm in Helm::all() {
        let rendered = helm.render(&values.to_string());
        assert_eq!(rendered.all("StatefulSet").len(), 1);
        for key in ["securityContext", "tolerations", "affinity", "nodeSelector", "initContainers"] {
            assert!(rendered.pod()[key].is_null(), "{key}");
        }
    }
}

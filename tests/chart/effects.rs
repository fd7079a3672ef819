//! No key without an effect: whatever is set to another value changes what is rendered.

use serde_json::{Value, json};

use crate::{
    documented::{keys, schema},
    helm::{Helm, in_parallel, text},
};

/// What a key needs beside it to count, by the start of its path. The first that fits is taken.
const CONTEXTS: &[(&str, &str)] = &[
    ("grpcRoute.enabled", "{grpcRoute: {parentRefs: [{name: a}]}}"),
    ("ingress.enabled", "{ingress: {hosts: [a.example]}}"),
    ("allowedTools.enabled", "{}"),
    ("allowedTools.names", "{allowedTools: {enabled: true, names: [a]}}"),
    ("allowedTools.strict", "{allowedTools: {enabled: true, names: [a]}}"),
    ("allowedTools", "{allowedTools: {enabled: true, names: [a], strict: true}}"),
    ("toolsFrom.key", "{toolsFrom: {configMap: a}}"),
    ("service.nodePort", "{service: {type: NodePort}}"),
    ("service.externalTrafficPolicy", "{service: {type: NodePort}}"),
    ("service.loadBalancer", "{service: {type: LoadBalancer}}"),
    ("grpcRoute", "{grpcRoute: {enabled: true, parentRefs: [{name: a}]}}"),
    ("ingress", "{ingress: {enabled: true, hosts: [a.example]}}"),
];

/// Other values than the default, where the schema alone does not tell one. Each may need more keys, so it is a whole file.
const OTHERS: &[(&str, &str)] = &[
    ("replicaCount", "{replicaCount: 0}"),
    ("image.registry", "{image: {registry: r.example}}"),
    ("image.repository", "{image: {repository: other}}"),
    ("image.tag", "{image: {tag: other}}"),
    (
        "image.digest",
        "{image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}}",
    ),
    ("imagePullSecrets", "{imagePullSecrets: [{name: a}]}"),
    ("nameOverride", "{nameOverride: other}"),
    ("fullnameOverride", "{fullnameOverride: other}"),
    ("namespaceOverride", "{namespaceOverride: other}"),
    ("store.sqlite.existingClaim", "{store: {sqlite: {existingClaim: a}}}"),
    ("store.sqlite.size", "{store: {sqlite: {size: 2Gi}}}"),
    ("store.sqlite.storageClassName", "{store: {sqlite: {storageClassName: ''}}}"),
    ("store.sqlite.accessModes", "{store: {sqlite: {accessModes: [ReadWriteOncePod]}}}"),
    ("tools", "{tools: [{name: a}]}"),
    ("toolsFrom.configMap", "{toolsFrom: {configMap: a}}"),
    ("toolsFrom.key", "{toolsFrom: {key: other}}"),
    ("probing.allow", "{probing: {allow: [a.example]}}"),
    ("probing.deny", "{probing: {deny: [10.0.0.1]}}"),
    ("probing.canary", "{probing: {canary: 'a.example:443'}}"),
    ("probing.secrets", "{probing: {secrets: [{name: a}]}}"),
    ("allowedTools.enabled", "{allowedTools: {enabled: true, names: [a]}}"),
    ("allowedTools.names", "{allowedTools: {names: [b]}}"),
    ("log.level", "{log: {level: debug}}"),
    ("config", "{config: {max_watches: 1}}"),
    ("service.nodePort", "{service: {nodePort: 30000}}"),
    ("service.appProtocol", "{service: {appProtocol: ''}}"),
    ("service.ipFamilies", "{service: {ipFamilies: [IPv6]}}"),
    ("service.loadBalancerClass", "{service: {loadBalancerClass: a}}"),
    ("service.loadBalancerSourceRanges", "{service: {loadBalancerSourceRanges: [10.0.0.0/8]}}"),
    ("grpcRoute.parentRefs", "{grpcRoute: {parentRefs: [{name: b}]}}"),
    ("grpcRoute.hostnames", "{grpcRoute: {hostnames: [a.example]}}"),
    ("grpcRoute.matches", "{grpcRoute: {matches: [{method: {service: a}}]}}"),
    ("grpcRoute.filters", "{grpcRoute: {filters: [{type: RequestMirror}]}}"),
    ("ingress.className", "{ingress: {className: a}}"),
    ("ingress.hosts", "{ingress: {hosts: [b.example]}}"),
    ("ingress.tls", "{ingress: {tls: [{secretName: a}]}}"),
    ("networkPolicy.grpcFrom", "{networkPolicy: {grpcFrom: [{podSelector: {}}]}}"),
    ("networkPolicy.adminFrom", "{networkPolicy: {adminFrom: [{podSelector: {}}]}}"),
    ("networkPolicy.probeTo", "{networkPolicy: {probeTo: [{podSelector: {}}]}}"),
    ("networkPolicy.extraIngress", "{networkPolicy: {extraIngress: [{}]}}"),
    ("networkPolicy.extraEgress", "{networkPolicy: {extraEgress: [{}]}}"),
    ("podDisruptionBudget.maxUnavailable", "{podDisruptionBudget: {maxUnavailable: 50%}}"),
    ("serviceAccount.name", "{serviceAccount: {name: a}}"),
    ("podSecurityContext", "{podSecurityContext: {runAsUser: 1000}}"),
    ("securityContext", "{securityContext: {runAsUser: 1000}}"),
    ("resources", "{resources: {limits: {cpu: 1}}}"),
    ("tests.resources", "{tests: {resources: {limits: {cpu: 1}}}}"),
    ("tolerations", "{tolerations: [{operator: Exists}]}"),
    ("affinity", "{affinity: {podAffinity: {}}}"),
    ("topologySpreadConstraints", "{topologySpreadConstraints: []}"),
    ("priorityClassName", "{priorityClassName: a}"),
    ("runtimeClassName", "{runtimeClassName: a}"),
    ("schedulerName", "{schedulerName: a}"),
    ("hostAliases", "{hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]}"),
    ("dnsConfig", "{dnsConfig: {searches: [a]}}"),
    ("extraArgs", "{extraArgs: [--log=debug]}"),
    ("extraEnv", "{extraEnv: [{name: A, value: b}]}"),
    ("extraEnvFrom", "{extraEnvFrom: [{secretRef: {name: a}}]}"),
    ("extraVolumes", "{extraVolumes: [{name: a, emptyDir: {}}]}"),
    ("extraVolumeMounts", "{extraVolumeMounts: [{name: data, mountPath: /a}]}"),
    ("initContainers", "{initContainers: [{name: a}]}"),
    ("extraContainers", "{extraContainers: [{name: a}]}"),
    ("extraObjects", "{extraObjects: [{kind: A}]}"),
];

#[test]
fn every_key_has_an_effect() {
    let Some(helm) = Helm::newest() else { return };
    let keys: Vec<_> = keys().into_iter().filter(|k| !is_section(&k.path)).collect();
    assert!(keys.len() > 100, "{}", keys.len());
    let without = in_parallel(&keys, |key| {
        let context = CONTEXTS.iter().find(|(start, _)| key.path.starts_with(start)).map_or("{}", |(_, c)| c);
        let context: Value = serde_saphyr::from_str(context).unwrap();
        let mut changed = context.clone();
        merge(&mut changed, &other(&key.path, &key.default));
        assert_ne!(at(&changed, &key.path), &key.default, "{}: set to its own default", key.path);
        let render = |values: &Value| helm.text(&values.to_string());
        (render(&context) == render(&changed)).then(|| key.path.clone())
    });
    let without: Vec<String> = without.into_iter().flatten().collect();
    assert!(without.is_empty(), "no effect: {without:?}");
}

#[test]
fn the_table_names_keys_that_exist() {
    let keys: Vec<String> = keys().into_iter().map(|k| k.path).collect();
    for (path, _) in OTHERS {
        assert!(keys.iter().any(|k| k == path), "{path}");
    }
}

fn is_section(path: &str) -> bool {
    let mut at = &schema();
    for part in path.split('.') {
        at = &at["properties"][part];
    }
    at["properties"].is_object() && path != "config"
}

/// A file of values in which this key is not as by default.
fn other(path: &str, default: &Value) -> Value {
    if let Some((_, other)) = OTHERS.iter().find(|(known, _)| *known == path) {
        return serde_saphyr::from_str(other).unwrap();
    }
    let schema = schema();
    let mut at = &schema;
    for part in path.split('.') {
        at = &at["properties"][part];
    }
    let value = match (default, &at["enum"], at["$ref"].as_str()) {
        (_, Value::Array(all), _) => all.iter().find(|v| *v != default && **v != "").unwrap().clone(),
        (Value::Bool(value), ..) => json!(!value),
        (Value::Number(value), ..) => json!(value.as_i64().unwrap() + 1),
        (_, _, Some("#/$defs/texts")) => json!({"a.example/b": "c"}),
        (_, _, Some(duration)) if duration.ends_with("uration") => json!("17s"),
        _ => panic!("which other value may {path} have? Add it to the table"),
    };
    path.rsplit('.').fold(value, |value, part| json!({ part: value }))
}

fn at<'a>(values: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(values, |values, part| &values[part])
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[test]
fn the_merge_is_deep() {
    let mut values = json!({"a": {"b": 1}, "c": 2});
    merge(&mut values, &json!({"a": {"d": 3}, "c": 4}));
    assert_eq!(values, json!({"a": {"b": 1, "d": 3}, "c": 4}));
    assert_eq!(text(at(&json!({"a": {"b": "c"}}), "a.b")), "c");
}

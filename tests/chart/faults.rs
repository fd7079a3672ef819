//! Faults that users of other charts really hit: each test names the threads that tell of it. The numbers in the tests' names are
//! only for speaking of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    documented::schema,
    helm::{Helm, Rendered, in_parallel, list, text, value_files},
};

/// openfga/helm-charts#259: a limit of 0 could not be set, since a template took 0 for nothing.
#[test]
fn h1_zero_is_a_value() {
    for helm in Helm::all() {
        let rendered = helm.render(
            "{replicaCount: 0, revisionHistoryLimit: 0, shutdown: {preStopSeconds: 0, spread: 0s},
              probes: {startup: {initialDelaySeconds: 0}}, config: {watch_coalesce: 0s, gateway_status_tool: false}}",
        );
        assert_eq!(rendered.set()["replicas"], 0);
        assert_eq!(rendered.set()["revisionHistoryLimit"], 0);
        assert_eq!(rendered.container()["startupProbe"]["initialDelaySeconds"], 0);
        assert!(rendered.args().contains(&"--drain-spread=0s"));
        assert_eq!(rendered.config()["watch_coalesce"], "0s");
        assert_eq!(rendered.config()["gateway_status_tool"], false);
        // Kubernetes before 1.34 refuses a sleep of 0 seconds: none is the same.
        assert!(rendered.container()["lifecycle"].is_null());
    }
}

/// fosrl/helm-charts#34: the same, found by a sweep over the schema.
#[test]
fn h2_every_number_that_may_be_zero_is_rendered_as_zero() {
    fn zeros(schema: &Value, at: &[&str], found: &mut Vec<Value>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = [at, &[key.as_str()]].concat();
            if property["minimum"] == 0 {
                found.push(at.iter().rev().fold(json!(0), |value, part| json!({ *part: value })));
            }
            zeros(property, &at, found);
        }
    }
    let Some(helm) = Helm::newest() else { return };
    let mut found = Vec::new();
    zeros(&schema(), &[], &mut found);
    assert!(found.len() >= 5, "{found:?}");
    let count =
        |values: &str| helm.text(values).lines().filter(|line| line.trim_end().ends_with(": 0")).count();
    for values in found {
        let one = values.to_string().replace(":0}", ":1}");
        let (zero, one) = (count(&values.to_string()), count(&one));
        // A sleep of no time is left out on purpose.
        let left_out = values["shutdown"].is_object();
        assert!(left_out || zero == one + 1, "{values}: {zero} lines with 0, and {one} with 1");
    }
}

/// math-nao/certs#44: the defaults broke the chart's own schema.
#[test]
fn h4_defaults_and_overlays_are_valid() {
    for helm in Helm::all() {
        in_parallel(&value_files(), |(_, values)| {
            helm.render(values);
        });
        helm.render("");
    }
}

/// temporalio/helm-charts#894: a probe with two handlers, since a default map can't be removed.
#[test]
fn h5_a_probe_has_exactly_one_handler() {
    let Some(helm) = Helm::newest() else { return };
    for (name, values) in value_files() {
        let rendered = helm.render(&values);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = &rendered.container()[probe];
            let handlers =
                ["grpc", "httpGet", "tcpSocket", "exec"].iter().filter(|h| !probe[*h].is_null()).count();
            assert!(probe.is_null() || handlers == 1 && probe["grpc"].is_object(), "{name}: {probe}");
        }
    }
}

/// external-secrets#1997: a suffix pushed a Service's name over 63 characters. Our StatefulSet's name has less room still:
/// Kubernetes makes a label of it and 11 more characters (kubernetes/kubernetes#64023).
#[test]
fn h7_names_fit_and_differ_for_the_longest_and_strangest_releases() {
    let long = |end: &str| format!("{}{end}", "r".repeat(53 - end.len()));
    let releases = [
        long(""),
        long("x"),
        long("y"),
        long("-1"),
        "toolpulse".to_owned(),
        "my-toolpulse-2".to_owned(),
        "1st".to_owned(),
        "a.b".to_owned(),
        "a-b".to_owned(),
        format!("{}.{}", "a".repeat(25), "b".repeat(25)),
    ];
    for helm in Helm::all() {
        let mut stems = BTreeSet::new();
        for release in &releases {
            let rendered = helm.template_as(release, &[], "{tools: [{name: a}]}").unwrap();
            let mut names = BTreeSet::new();
            for object in &rendered.0 {
                let name = text(&object["metadata"]["name"]);
                let dns = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
                let ends = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
                assert!(name.len() <= 63 && dns && ends, "{release}: {name}");
                assert!(
                    names.insert((text(&object["kind"]).to_owned(), name.to_owned())),
                    "{release}: {name} twice"
                );
                for (label, value) in object["metadata"]["labels"].as_object().unwrap() {
                    assert!(text(value).len() <= 63, "{label}: {value}");
                }
            }
            let stem = text(&rendered.one("StatefulSet", "")["metadata"]["name"]);
            assert!(stem.len() <= 52, "{stem}");
            assert!(stems.insert(stem.to_owned()), "{release}: another release is called {stem}");
            // Whoever refers to a name means the one that exists.
            let headless = text(&rendered.set()["serviceName"]).to_owned();
            assert!(names.contains(&("Service".to_owned(), headless)));
            let account = text(&rendered.pod()["serviceAccountName"]).to_owned();
            assert!(names.contains(&("ServiceAccount".to_owned(), account)));
            for volume in list(&rendered.pod()["volumes"]) {
                let map = text(&volume["configMap"]["name"]).to_owned();
                assert!(names.contains(&("ConfigMap".to_owned(), map)));
            }
        }
    }
}

/// kubestellar/console#20824, Kong/charts#1457: OpenShift's restricted-v2 refuses a user of our choice.
#[test]
fn h8_openshift_gets_no_ids_and_null_removes_a_key() {
    for helm in Helm::all() {
        let rendered = helm.render("{openshift: {enabled: true}, securityContext: {runAsUser: 5}}");
        for pod in [rendered.pod(), &rendered.one("Pod", "-test")["spec"]] {
            let text = pod.to_string();
            assert!(!["runAsUser", "runAsGroup", "fsGroup\""].iter().any(|key| text.contains(key)), "{text}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        }
        let rendered = helm.render("{podSecurityContext: {runAsUser: null}, securityContext: null}");
        let context = rendered.pod()["securityContext"].as_object().unwrap();
        assert!(!context.contains_key("runAsUser") && context.contains_key("runAsNonRoot"), "{context:?}");
        assert!(!rendered.container().as_object().unwrap().contains_key("securityContext"));
    }
}

/// sequinstream/sequin#2155: a Service called like the prefix of our variables. That the server survives it as well is
/// tested with the server.
#[test]
fn h10_no_service_links() {
    let Some(helm) = Helm::newest() else { return };
    for (name, values) in value_files() {
        let rendered = helm.render(&values);
        let tests = rendered.all("Pod");
        for pod in [rendered.pod()].into_iter().chain(tests.iter().map(|p| &p["spec"])) {
            assert_eq!(pod["enableServiceLinks"], false, "{name}");
        }
    }
}

/// cert-manager#5162, argo-helm#2243: an object was left out where `helm template` did not know the cluster's APIs.
#[test]
fn h11_what_is_asked_for_is_rendered_without_a_cluster() {
    for helm in Helm::all() {
        let rendered = helm.render(
            "{grpcRoute: {enabled: true, parentRefs: [{name: a}]}, ingress: {enabled: true, hosts: [a.b]}}",
        );
        for kind in
            ["GRPCRoute", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet", "ServiceAccount"]
        {
            assert_eq!(rendered.all(kind).len(), 1, "{kind}");
        }
        assert_eq!(rendered.all("Service").len(), 2);
    }
}

/// cockroachdb/helm-charts#383: rules for gRPC were not rendered.
#[test]
fn h13_a_policy_has_one_rule_a_port_for_any_number_of_peers() {
    for helm in Helm::all() {
        for (count, peers) in
            [(0, "[]"), (1, "[{podSelector: {}}]"), (2, "[{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]")]
        {
            let values = format!(
                "{{networkPolicy: {{grpcFrom: {peers}, adminFrom: {peers}, probeTo: {peers}}}, tests: {{enabled: false}}}}"
            );
            let rendered = helm.render(&values);
            let spec = &rendered.one("NetworkPolicy", "")["spec"];
            assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
            let ports: Vec<&Value> =
                list(&spec["ingress"]).iter().map(|rule| &rule["ports"][0]["port"]).collect();
            assert_eq!(ports, ["grpc", "admin"]);
            for rule in list(&spec["ingress"]) {
                assert_eq!(list(&rule["from"]).len(), count, "{rule}");
                // An empty list and none mean the same; none is what everybody knows.
                assert_eq!(rule.as_object().unwrap().contains_key("from"), count > 0);
            }
            let egress = list(&spec["egress"]);
            assert_eq!(egress[0]["ports"][0], json!({"port": 53, "protocol": "UDP"}));
            assert_eq!(list(&egress[1]["to"]).len(), if count == 0 { 3 } else { count });
        }
        // Whoever may call or not, the pod of `helm test` may.
        let rendered = helm.render("{networkPolicy: {grpcFrom: [{podSelector: {}}]}}");
        let from = list(&rendered.one("NetworkPolicy", "")["spec"]["ingress"][0]["from"]);
        let test = &rendered.one("Pod", "-test")["metadata"]["labels"];
        let selected = from[1]["podSelector"]["matchLabels"].as_object().unwrap();
        assert!(selected.iter().all(|(k, v)| &test[k] == v), "{from:?}");
    }
}

/// pingidentity/helm-charts#272: a spread constraint needs a selector, which a user can't know.
#[test]
fn h14_spread_constraints_get_the_selector_and_keep_the_user_s() {
    for helm in Helm::all() {
        let rendered = helm.render("");
        let ours = &rendered.set()["selector"];
        let given = list(&rendered.pod()["topologySpreadConstraints"]);
        assert_eq!(given.len(), 2);
        assert!(given.iter().all(|c| &c["labelSelector"] == ours), "{given:?}");
        let rendered = helm.render(
            "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {x: 'y'}}},
              {maxSkew: 1, topologyKey: '{{ .Release.Name }}', whenUnsatisfiable: DoNotSchedule}]}",
        );
        let given = list(&rendered.pod()["topologySpreadConstraints"]);
        assert_eq!(given[0]["labelSelector"], json!({"matchLabels": {"x": "y"}}));
        assert_eq!((&given[1]["labelSelector"], &given[1]["topologyKey"]), (ours, &json!("rel")));
    }
}

/// windmill-helm-charts#544: `replicas` beside an autoscaler. There is none, and one is refused in words.
#[test]
fn h16_an_autoscaler_is_refused_with_both_keys_named() {
    for helm in Helm::all() {
        for values in [
            "{autoscaling: {enabled: true}}",
            "{autoscaling: {enabled: false}}",
            "{autoscaling: {minReplicas: 1}}",
        ] {
            let message = helm.refusal(values);
            for part in ["autoscaling", "replicaCount", "store.type"] {
                assert!(message.contains(part), "helm {}: no {part} in {message}", helm.major);
            }
        }
        for (name, values) in value_files() {
            assert!(helm.render(&values).all("HorizontalPodAutoscaler").is_empty(), "{name}");
        }
    }
}

/// helm#31516, helm-controller#343: a name twice in a list breaks every upgrade by Helm 4, which applies on the server.
#[test]
fn h17_nothing_is_there_twice() {
    let Some(helm) = Helm::newest() else { return };
    let keys = [
        ("env", "name"),
        ("volumeMounts", "mountPath"),
        ("volumes", "name"),
        ("containers", "name"),
        ("ports", "name"),
    ];
    for (name, values) in value_files() {
        for object in &helm.render(&values).0 {
            each(object, &mut |map| {
                for (list_key, key) in keys {
                    let items: Vec<String> =
                        list(&map[list_key]).iter().map(|item| item[key].to_string()).collect();
                    let named = items.iter().filter(|n| *n != "null");
                    let mut seen = BTreeMap::<_, u8>::new();
                    named.for_each(|n| *seen.entry(n).or_default() += 1);
                    assert!(seen.values().all(|n| *n == 1), "{name}: {list_key}: {items:?}");
                }
            });
        }
    }
    for (values, what) in [
        ("{extraEnv: [{name: A, value: a}, {name: A, value: b}]}", "extraEnv: the variable A is there twice"),
        (
            "{extraEnv: [{name: A, value: a}, {name: '{{ print \"A\" }}', value: b}]}",
            "the variable A is there twice",
        ),
        (
            "{allowedTools: {enabled: true, names: [a]}, extraEnv: [{name: ALLOWED_TOOLS, value: b}]}",
            "ALLOWED_TOOLS is there twice",
        ),
        ("{extraVolumes: [{name: data, emptyDir: {}}]}", "extraVolumes: the volume data is there twice"),
        ("{extraVolumes: [{name: config, emptyDir: {}}]}", "the volume config is there twice"),
    ] {
        let message = helm.refusal(values);
        assert!(message.contains(what), "{values}: {message}");
    }
}

/// openfga/helm-charts#114: three replicas of a registry in memory are three registries.
#[test]
fn h19_a_second_replica_is_refused_with_both_keys_named() {
    for helm in Helm::all() {
        for store in ["memory", "sqlite"] {
            for more in ["replicaCount: 2", "replicaCount: 1, autoscaling: {enabled: true}"] {
                let message = helm.refusal(&format!("{{store: {{type: {store}}}, {more}}}"));
                assert!(message.contains("replicaCount") && message.contains("store.type"), "{message}");
                assert!(message.contains(store), "{message}");
            }
        }
    }
}

/// kubestellar/console#6994, helm/charts#7127: a budget at one replica that lets no node be drained.
#[test]
fn h20_a_budget_always_lets_a_pod_go() {
    for helm in Helm::all() {
        for replicas in [0, 1] {
            let rendered = helm.render(&format!("{{replicaCount: {replicas}}}"));
            let budget = &rendered.one("PodDisruptionBudget", "")["spec"];
            assert_eq!((&budget["maxUnavailable"], &budget["minAvailable"]), (&json!(1), &Value::Null));
            assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        }
        for (values, key) in [
            ("{podDisruptionBudget: {maxUnavailable: 0}}", "maxUnavailable"),
            ("{podDisruptionBudget: {maxUnavailable: 0%}}", "maxUnavailable"),
            ("{podDisruptionBudget: {minAvailable: 1}}", "minAvailable"),
            ("{podDisruptionBudget: {minAvailable: 100%}}", "minAvailable"),
        ] {
            let message = helm.refusal(values);
            assert!(message.contains(&format!("podDisruptionBudget.{key}")), "{values}: {message}");
            assert!(message.contains("no node be drained"), "{values}: {message}");
        }
    }
}

/// mattrobinsonsre/bamf#177: an exec hook in an image without a shell.
#[test]
fn h22_nothing_is_executed_in_the_container() {
    let Some(helm) = Helm::newest() else { return };
    for (name, values) in value_files() {
        for object in &helm.render(&values).0 {
            each(object, &mut |map| {
                assert!(map["exec"].is_null(), "{name}: {map}");
                // The image's entry point is the program.
                assert!(map["command"].is_null(), "{name}: {map}");
            });
        }
    }
}

/// kubernetes#128365: probes of Kubernetes speak no TLS. They go to a port that never will.
#[test]
fn h23_probes_ask_the_admin_port() {
    let Some(helm) = Helm::newest() else { return };
    let rendered = helm.render("{server: {grpc: {port: 1000}, admin: {port: 2000}}}");
    let container = rendered.container();
    for (probe, service) in
        [("startupProbe", "liveness"), ("livenessProbe", "liveness"), ("readinessProbe", "")]
    {
        assert_eq!(container[probe]["grpc"], json!({"port": 2000, "service": service}), "{probe}");
    }
    assert!(rendered.args().contains(&"--admin-listen=0.0.0.0:2000"));
    // Nobody outside is led to it.
    for service in rendered.all("Service") {
        assert!(!service.to_string().contains("admin"), "{service}");
    }
}

/// envoyproxy/gateway#5446: routes cut streams after 15 s. The notes say what to do.
#[test]
fn h38_the_notes_tell_of_cut_streams() {
    for helm in Helm::all() {
        let notes = helm.dry_run("agents", "{grpcRoute: {enabled: true, parentRefs: [{name: a}]}}");
        assert!(notes.contains("Envoy's routes do after 15 s"), "{notes}");
    }
}

/// openfga/helm-charts#20, qdrant-helm#402: HTTP and gRPC on one Ingress.
#[test]
fn h43_an_ingress_is_for_grpc_alone() {
    for helm in Helm::all() {
        let rendered = helm.render("{ingress: {enabled: true, hosts: [a.b, c.d]}}");
        let rules = list(&rendered.one("Ingress", "")["spec"]["rules"]);
        assert_eq!(rules.len(), 2);
        for rule in rules {
            let paths = list(&rule["http"]["paths"]);
            assert_eq!(paths.len(), 1);
            let service = &paths[0]["backend"]["service"];
            assert_eq!(service, &json!({"name": "rel-toolpulse", "port": {"name": "grpc"}}));
        }
    }
}

/// dexidp/helm-charts#147, argo-helm#3991: appProtocol wrong or missing.
#[test]
fn h44_the_port_says_h2c_and_can_say_otherwise() {
    for helm in Helm::all() {
        for (values, protocol) in [
            ("{}", json!("kubernetes.io/h2c")),
            ("{service: {appProtocol: grpc}}", json!("grpc")),
            ("{service: {appProtocol: ''}}", Value::Null),
        ] {
            for service in helm.render(values).all("Service") {
                assert_eq!(service["spec"]["ports"][0]["appProtocol"], protocol, "{values}");
            }
        }
    }
}

/// istio#15414, openfga/helm-charts#335: a test pod that never ends, or whose program is not in the image.
#[test]
fn h50_the_test_pod_runs_our_program_and_ends() {
    for helm in Helm::all() {
        let rendered = helm.render("{service: {port: 80}}");
        let pod = rendered.one("Pod", "-test");
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "test");
        assert_eq!(annotations["sidecar.istio.io/inject"], "false");
        let spec = &pod["spec"];
        assert_eq!(spec["restartPolicy"], "Never");
        assert!(spec["activeDeadlineSeconds"].as_u64().unwrap() <= 300);
        assert_eq!(spec["securityContext"], rendered.pod()["securityContext"]);
        let server = "--server=http://rel-toolpulse.default.svc:80";
        let containers = [&list(&spec["initContainers"])[0], &list(&spec["containers"])[0]];
        for (container, args) in
            containers.into_iter().zip([vec!["healthcheck", server], vec!["tools", "list", server]])
        {
            assert_eq!(container["args"], json!(args));
            assert_eq!(container["image"], rendered.container()["image"]);
            assert_eq!(container["securityContext"], rendered.container()["securityContext"]);
        }
        // A hook can't be talked out of being one.
        let rendered = helm.render("{tests: {annotations: {helm.sh/hook: pre-install}}}");
        assert_eq!(rendered.one("Pod", "-test")["metadata"]["annotations"]["helm.sh/hook"], "test");
        assert!(helm.render("{tests: {enabled: false}}").all("Pod").is_empty());
    }
}

/// Does something with every map in an object.
fn each(value: &Value, look: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(map) => {
            look(value);
            map.values().for_each(|v| each(v, look));
        }
        Value::Array(items) => items.iter().for_each(|v| each(v, look)),
        _ => {}
    }
}

#[test]
fn every_map_is_looked_at() {
    let mut seen = 0;
    each(&json!({"a": [{"b": {}}, 1]}), &mut |_| seen += 1);
    assert_eq!(seen, 3);
    assert_eq!(Rendered::parse("---\na: 1\n---\n---\nb: 2\n").0.len(), 2);
}

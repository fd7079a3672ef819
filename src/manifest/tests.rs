use std::{fs, os::unix::fs::symlink, path::Path};

use tokio::{sync::mpsc, time};

use super::{Defaults, Event, Manifest, POLL, load};
use crate::proto::v1::{
    HttpMethod, ProbeHeader, ProbeTls, probe_body, probe_header::Content, probe_spec::Kind,
};

fn parse(text: &str) -> Result<Manifest, String> {
    Manifest::parse("tools.yaml", text, Defaults::default()).map_err(|e| e.to_string())
}

const FULL: &str = r#"
owner: search-team
namespace: prod
tools:
  - name: search
    title: Search
    description: |
      Finds pages.
    input_schema:
      type: object
      properties:
        zulu: {type: integer, default: 1, maximum: 12345678901}
        alpha: {type: number, default: 1.0, enum: [yes, no, on, "1"]}
        pattern: {type: string, pattern: "^\\d+$"}
      required: [zulu]
    output_schema: '{"type": "object"}'
    annotations: {readOnlyHint: true}
    extra: {_meta: {b: 1, a: null}}
    endpoint: http://search.internal/mcp
    labels: {team: search, version: "2"}
    probes:
      - http: {url: "http://search.internal/health", expected_statuses: [401], no_statuses: [410], method: HEAD}
      - name: shard
        grpc: {target: "search.internal:443", service: search.v1, tls: {server_name: s.internal}}
      - tcp: {address: "search.internal:5432"}
      - mcp: {url: "http://search.internal/mcp", expected_statuses: [401]}
      - report: {}
    interval: 5s
    timeout: 500ms
    ttl: 1m
    grace: 1h 30m
  - name: search
    namespace: test
"#;

#[test]
fn the_full_form() {
    let manifest = parse(FULL).unwrap();
    assert_eq!(manifest.owner, "search-team");
    let places: Vec<_> = manifest.tools.iter().map(|(ns, t)| (ns.as_str(), t.name.as_str())).collect();
    assert_eq!(places, [("prod", "search"), ("test", "search")]);
    let tool = &manifest.tools[0].1;
    assert_eq!(
        tool.input_schema_json,
        concat!(
            r#"{"type":"object","properties":{"zulu":{"type":"integer","default":1,"maximum":12345678901},"#,
            r#""alpha":{"type":"number","default":1.0,"enum":["yes","no","on","1"]},"#,
            r#""pattern":{"type":"string","pattern":"^\\d+$"}},"required":["zulu"]}"#
        )
    );
    assert_eq!(tool.output_schema_json, r#"{"type": "object"}"#, "a text stays as it was written");
    assert_eq!(tool.annotations_json, r#"{"readOnlyHint":true}"#);
    assert_eq!(tool.extra_json, r#"{"_meta":{"b":1,"a":null}}"#);
    assert_eq!(tool.description, "Finds pages.\n");
    assert_eq!(tool.labels["version"], "2");
    let kinds: Vec<_> = tool.probes.iter().map(|p| (p.name.as_str(), p.kind.clone().unwrap())).collect();
    let [
        ("", Kind::Http(http)),
        ("shard", Kind::Grpc(grpc)),
        ("", Kind::Tcp(tcp)),
        ("", Kind::Mcp(mcp)),
        ("", Kind::Report(_)),
    ] = kinds.as_slice()
    else {
        panic!("{kinds:?}")
    };
    assert_eq!(
        (http.method(), &*http.expected_statuses, &*http.no_statuses),
        (HttpMethod::Head, &[401][..], &[410][..])
    );
    assert_eq!(grpc.tls.as_ref().unwrap().server_name, "s.internal");
    assert_eq!(tcp.address, "search.internal:5432");
    assert_eq!((mcp.url.as_str(), &*mcp.expected_statuses), ("http://search.internal/mcp", &[401][..]));
    let seconds = [tool.interval, tool.timeout, tool.ttl, tool.grace].map(|d| {
        let d = d.unwrap();
        (d.seconds, d.nanos)
    });
    assert_eq!(seconds, [(5, 0), (0, 500_000_000), (60, 0), (5_400, 0)]);
}

#[test]
fn small_forms() {
    let none = parse("tools: []").unwrap();
    assert_eq!((none.owner.as_str(), none.tools.len()), ("manifest", 0));
    let json = parse(
        r#"{"tools": [{"name": "a", "description": "\ud83d\ude00", "input_schema": { "b": 1.0, "a": 1e2}}]}"#,
    );
    let (namespace, tool) = json.unwrap().tools.remove(0);
    assert_eq!((namespace.as_str(), tool.description.as_str()), ("default", "\u{1f600}"));
    assert_eq!(tool.input_schema_json, r#"{ "b": 1.0, "a": 1e2}"#, "JSON stays as it was written");
    let flow = parse("{tools: [{name: a}]}").unwrap();
    assert_eq!(flow.tools.len(), 1, "YAML that merely looks like JSON");
}

#[test]
fn errors_say_the_line() {
    let cases = [
        ("", "tools.yaml line 1: ", "unexpected end of input"),
        ("owner: me\n", "tools.yaml line 1: ", "missing field `tools`"),
        ("tools:\n  - name: a\n    nmae: b\n", "tools.yaml line 3: ", "nmae"),
        ("tools:\n  - title: a\n", "tools.yaml line 2: ", "name"),
        (
            "tools:\n  - name: a\n  - name: b\n  - name: a\n",
            "tools.yaml line 4: ",
            "declared twice; the first is in line 2",
        ),
        (
            "tools:\n  - name: a\n    interval: 30\n",
            "tools.yaml line 3: ",
            ": '30' has no unit; write 30s for seconds",
        ),
        ("tools:\n  - name: a\n    interval: soon\n", "tools.yaml line 3: ", "'soon' is not a duration"),
        ("tools:\n  - name: a\n    interval: -3s\n", "tools.yaml line 3: ", "negative"),
        ("tools:\n  - name: a\n    input_schema: '{'\n", "tools.yaml line 3: ", "this text is not JSON"),
        ("tools:\n  - name: a\n    input_schema: [1]\n", "tools.yaml line 3: ", "expected a mapping"),
        (
            "tools:\n  - name: a\n    input_schema:\n      a: 1\n      a: 2\n",
            "tools.yaml line 5: ",
            "uplicate",
        ),
        (
            "tools:\n  - name: a\n    probes:\n      - name: x\n",
            "tools.yaml line 4: ",
            "exactly one of http, grpc, tcp, mcp",
        ),
        ("tools:\n  - name: a\n    probes:\n      - exec: rm\n", "tools.yaml line 4: ", "exec"),
        ("tools:\n  - name: a\n    probes:\n      - tcp: {}\n", "tools.yaml line 4: ", "address"),
        (
            "tools:\n  - name: a\n    probes:\n      - mcp: {url: 'http://h'}\n        report: {}\n",
            "tools.yaml line 4: ",
            "exactly one of http, grpc, tcp, mcp",
        ),
        ("tools:\n  - name: a\n   bad: [\n", "tools.yaml line 3: ", ""),
        (
            "{\"tools\": [{\"name\": \"a\"},\n{\"name\": \"a\"}]}",
            "tools.yaml",
            "declared twice; the first is tools[0]",
        ),
        (
            "{\"tools\": [{\"name\": \"a\",\n\"extra\": \"{\"}]}",
            "tools.yaml line 2: ",
            "this text is not JSON",
        ),
        ("{\"tools\": [{\"name\": \"a\",\n\"extra\": [1]}]}", "tools.yaml line 2: ", "expected a mapping"),
        ("{\"tools\": [\n{\"nom\": \"a\"}]}", "tools.yaml line 2: ", "nom"),
    ];
    for (text, place, what) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(place) && error.contains(what), "{text:?} gave {error:?}");
        assert!(!error.contains('\n') && !error.contains(", column"), "one line, one place: {error:?}");
    }
}

fn write(path: &Path, name: &str) {
    fs::write(path, format!("tools: [{{name: {name}}}]")).unwrap();
}

fn names(event: Option<Event>) -> Vec<String> {
    match event {
        Some(Event::Changed(manifest)) => manifest.tools.into_iter().map(|(_, t)| t.name).collect(),
        other => panic!("{other:?}"),
    }
}

/// As the kubelet does it: `tools.yaml` -> `..data/tools.yaml`, `..data` -> a directory, swapped by a rename.
#[tokio::test(start_paused = true)]
async fn follows_a_symlink_swap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.yaml");
    let publish = |version: &str, tool: &str| {
        let version_dir = dir.path().join(version);
        fs::create_dir(&version_dir).unwrap();
        write(&version_dir.join("tools.yaml"), tool);
        symlink(version, dir.path().join("..tmp")).unwrap();
        fs::rename(dir.path().join("..tmp"), dir.path().join("..data")).unwrap();
    };
    publish("..v1", "one");
    symlink("..data/tools.yaml", &path).unwrap();
    let (manifest, follower) = load(&path).unwrap();
    assert_eq!(manifest.tools[0].1.name, "one");

    let (tx, mut rx) = mpsc::channel(4);
    let running = tokio::spawn(follower.run(tx));
    time::sleep(POLL * 5).await;
    assert!(rx.try_recv().is_err(), "nothing changed");
    publish("..v2", "two");
    assert_eq!(names(rx.recv().await), ["two"]);
    time::sleep(POLL * 5).await;
    assert!(rx.try_recv().is_err(), "told once");

    drop(rx);
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn broken_files_and_half_written_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.yaml");
    write(&path, "one");
    let (_, mut follower) = load(&path).unwrap();

    fs::write(&path, "tools: [{name: tw").unwrap();
    assert_eq!(follower.look().await, None, "seen once, it may be half of a file");
    write(&path, "two");
    assert_eq!(follower.look().await, None, "seen once");
    assert_eq!(names(follower.look().await), ["two"]);
    assert_eq!(follower.look().await, None);

    fs::write(&path, "tools:\n  - nom: x\n").unwrap();
    assert_eq!(follower.look().await, None);
    let Some(Event::Broken(why)) = follower.look().await else { panic!("no event") };
    assert!(why.contains("tools.yaml line 2: "), "{why}");
    assert_eq!(follower.look().await, None, "told once");

    fs::remove_file(&path).unwrap();
    assert_eq!(follower.look().await, None);
    let Some(Event::Broken(why)) = follower.look().await else { panic!("no event") };
    assert!(why.starts_with("cannot read "), "{why}");

    write(&path, "two");
    assert_eq!(follower.look().await, None);
    assert_eq!(
        names(follower.look().await),
        ["two"],
        "back, and told, as the listener heard of a broken one"
    );
}

#[test]
fn what_a_probe_carries() {
    let text = r#"
tools:
  - name: search
    probes:
      - http:
          url: https://search.example/health
          method: POST
          body: '{"ping": true}'
          headers:
            - {name: authorization, bearer_secret_ref: token}
            - {name: x-key, secret_ref: key}
            - {name: x-team, value: search}
          tls: {ca_ref: ca, client_cert_ref: probe.crt, client_key_ref: probe.key, insecure_skip_verify: true}
      - grpc: {target: "search.example:443", headers: [{bearer_secret_ref: token}]}
"#;
    let tool = parse(text).unwrap().tools.remove(0).1;
    let Some(Kind::Http(http)) = &tool.probes[0].kind else { panic!("{tool:?}") };
    assert_eq!(http.method(), HttpMethod::Post);
    let body = http.body.clone().unwrap().content;
    assert!(body == Some(probe_body::Content::Text(r#"{"ping": true}"#.to_owned())));
    let header = |name: &str, content| ProbeHeader { name: name.to_owned(), content: Some(content) };
    let token = || Content::BearerSecretRef("token".to_owned());
    let expect = [
        header("authorization", token()),
        header("x-key", Content::SecretRef("key".to_owned())),
        header("x-team", Content::Value("search".to_owned())),
    ];
    assert!(http.headers == expect, "{:?}", http.headers);
    let tls = ProbeTls {
        server_name: String::new(),
        ca_ref: "ca".to_owned(),
        client_cert_ref: "probe.crt".to_owned(),
        client_key_ref: "probe.key".to_owned(),
        insecure_skip_verify: true,
    };
    assert_eq!(http.tls, Some(tls));
    let Some(Kind::Grpc(grpc)) = &tool.probes[1].kind else { panic!("{tool:?}") };
    assert_eq!(grpc.headers, [header("", token())]);
}

#[test]
fn errors_do_not_repeat_what_may_be_a_credential() {
    for field in [
        "headers: [{name: a, value: 133713371337}]",
        "headers: [{name: a, value: [133713371337]}]",
        "headers: [{name: a, value: \"133713371337\", secret_ref: b}]",
        "body: 133713371337",
        "body: {a: 133713371337}",
    ] {
        let text = format!("tools: [{{name: a, probes: [{{http: {{url: \"http://h\", {field}}}}}]}}]");
        let json = text.replace("tools:", "\"tools\":");
        for text in [&text, &json] {
            match parse(text) {
                Err(why) => assert!(!why.contains("133713371337"), "{why}"),
                // YAML takes a number for a text where one is asked for.
                Ok(manifest) => assert!(!format!("{manifest:?}").contains("133713371337"), "{field}"),
            }
        }
    }
}

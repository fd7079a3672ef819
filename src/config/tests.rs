use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt, path::PathBuf, time::Duration};

use super::*;

fn layers(flags: &[(&'static str, &str)], env: &[(&str, &str)], file: Option<&str>) -> Result<Layers, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolpulse.yaml");
    let path = file.map(|text| {
        fs::write(&path, text).unwrap();
        path
    });
    Layers::read(flags, path.as_deref(), &Environment::from_pairs(env.iter().copied()))
}

fn server(env: &[(&str, &str)]) -> Result<Settings, String> {
    layers(&[], env, None).and_then(|l| l.server()).map_err(|e| e.to_string())
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = server(&[]).unwrap();
    let secs = Duration::from_secs;
    assert_eq!(
        settings,
        Settings {
            listen: "127.0.0.1:50051".parse().unwrap(),
            admin_listen: "127.0.0.1:9091".parse().unwrap(),
            tls: None,
            allow_plaintext: false,
            store: Store::Sqlite,
            data_dir: PathBuf::from("./data"),
            manifest: None,
            probe: Probing {
                interval: secs(10),
                timeout: None,
                ttl: secs(30),
                grace: secs(30),
                egress: Egress::Strict,
                allow: vec![],
                deny: vec![],
                secrets_dir: None,
                insecure_tls: false,
                canary: None,
            },
            log: Log { filter: "info".to_owned(), json: false },
            allowlist: AllowlistEnvironment::default(),
            strict_wait: Duration::ZERO,
            default_policy: crate::core::policy::DefaultPolicy::Allow,
            gateway_status_tool: false,
            degraded_capabilities: false,
            watch: Watching {
                coalesce: Duration::from_millis(100),
                heartbeat: secs(15),
                max_age: secs(1_800),
                max_total: 20_000,
                max_per_peer: 1_000,
            },
            patience: Patience { keepalive_interval: secs(20), keepalive_timeout: secs(10), stall: secs(60) },
            max_request_bytes: 16 << 20,
            drain: Drain { lame_duck: Duration::ZERO, spread: secs(3), grace: secs(10) },
        }
    );
    let client = layers(&[], &[], None).unwrap().client().unwrap();
    assert_eq!(
        client,
        ClientSettings {
            server: "http://127.0.0.1:50051".to_owned(),
            tls: crate::config::ClientTls::default(),
            namespace: Namespace::default(),
            namespace_given: false,
            json: false,
        }
    );
}

#[test]
fn flags_over_environment_over_file_over_defaults() {
    const FLAG: &[(&str, &str)] = &[("probe_interval", "1s")];
    const ENV: &[(&str, &str)] = &[("TOOLPULSE_PROBE_INTERVAL", "2s")];
    const EMPTY: &[(&str, &str)] = &[("TOOLPULSE_PROBE_INTERVAL", "")];
    const FILE: Option<&str> = Some("# mine\nprobe_interval: 3s\n");
    let cases = [
        (FLAG, ENV, FILE, 1, "flag"),
        (&[], ENV, FILE, 2, "environment"),
        (&[], EMPTY, FILE, 3, "file"),
        (&[], &[], FILE, 3, "file"),
        (&[], EMPTY, None, 10, "default"),
    ];
    for (flags, env, file, seconds, layer) in cases {
        let layers = layers(flags, env, file).unwrap();
        assert_eq!(layers.server().unwrap().probe.interval, Duration::from_secs(seconds), "{layer}");
        assert_eq!(layers.effective("probe_interval").unwrap().origin.layer(), layer);
    }
    let unset = layers(&[("manifest", "")], &[("TOOLPULSE_MANIFEST", "a.yaml")], None).unwrap();
    assert_eq!(unset.server().unwrap().manifest, None, "an empty flag takes a setting back");
}

#[test]
fn the_file_has_values_of_every_kind() {
    let file = "max_watches: 5\ngateway_status_tool: true\nprobe_allow: [127.0.0.0/8, tools.internal]\n\
                data_dir: /var/lib/toolpulse\nmanifest:\nnamespace: prod\n";
    let layers = layers(&[], &[], Some(file)).unwrap();
    let settings = layers.server().unwrap();
    assert_eq!(settings.watch.max_total, 5);
    assert!(settings.gateway_status_tool);
    assert_eq!(settings.probe.allow, ["127.0.0.0/8", "tools.internal"]);
    assert_eq!(settings.data_dir, PathBuf::from("/var/lib/toolpulse"));
    let client = layers.client().unwrap();
    assert_eq!((client.namespace.as_str(), client.namespace_given), ("prod", true));
    assert!(super::tests::layers(&[], &[], Some("# nothing\n")).is_ok(), "an empty file sets nothing");
}

#[test]
fn errors_of_the_file_name_file_and_line() {
    let cases = [
        (
            "listen: 127.0.0.1:1\nprobe_intervall: 3s\n",
            "toolpulse.yaml line 2: unknown field `probe_intervall`",
        ),
        ("listen:\n  host: a\n", "toolpulse.yaml line 2: invalid type: map, expected a text"),
        ("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n", "toolpulse.yaml line 2: duplicate"),
        ("\nprobe_interval: 30\n", "probe_interval from "),
        ("\nprobe_interval: 30\n", "toolpulse.yaml line 2: '30' has no unit; write 30s for seconds"),
        ("- a\n", "toolpulse.yaml line 1: "),
        ("config: other.yaml\n", "unknown field `config`"),
    ];
    for (file, part) in cases {
        let error = layers(&[], &[], Some(file)).and_then(|l| l.server()).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{file:?} gave {error:?}");
    }
    let error = layers(&[], &[("TOOLPULSE_CONFIG", "/nowhere/x.yaml")], None).unwrap_err().to_string();
    let start =
        "cannot read the file of settings /nowhere/x.yaml, named by environment variable TOOLPULSE_CONFIG: ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn errors_say_which_setting_from_where_and_what_is_right() {
    let cases = [
        ("LISTEN", "localhost:50051", "'localhost:50051' is not ADDRESS:PORT, for example 127.0.0.1:50051"),
        ("LISTEN", "127.0.0.1", "is not ADDRESS:PORT"),
        ("ADMIN_LISTEN", "0:99999", "is not ADDRESS:PORT"),
        (
            "STORE",
            "postgres://u:secret@db/t",
            "a store at postgres:// is not supported yet; use sqlite or memory",
        ),
        ("STORE", "redis", "'redis' must be sqlite or memory"),
        ("PROBE_INTERVAL", "30", "'30' has no unit; write 30s for seconds"),
        ("PROBE_INTERVAL", "999ms", "'999ms' is out of bounds; it must be 1s to 1h"),
        ("PROBE_INTERVAL", "5M", "out of bounds"),
        ("PROBE_INTERVAL", "-5s", "'-5s' is negative"),
        ("PROBE_TIMEOUT", "2m", "'2m' is out of bounds; it must be 10ms to 1m"),
        (
            "PROBE_TTL",
            "13500ms",
            "13s 500ms is too short; it must be greater than 1.05 x probe_interval (10s) + probe_timeout (3s) = 13s 500ms",
        ),
        ("PROBE_GRACE", "10s", "10s is too short"),
        ("PROBE_TIMEOUT", "20s", "probe_ttl by default: 30s is too short"),
        ("PROBE_EGRESS", "open", "'open' must be strict or cluster"),
        ("LOG", "inof", "'inof' is not a level"),
        ("LOG_FORMAT", "xml", "'xml' must be text or json"),
        ("ALLOWLIST_VAR", "MY-TOOLS", "'MY-TOOLS' is not a variable's name"),
        ("GATEWAY_STATUS_TOOL", "yes", "'yes' must be true or false"),
        ("MAX_WATCHES", "0", "'0' must be a number from 1 to 1000000"),
        ("MAX_WATCHES_PER_PEER", "many", "must be a number"),
        ("MAX_REQUEST_BYTES", "16MB", "'16MB' must be bytes, or a size like 16MiB, from 256KiB to 256MiB"),
        ("MAX_REQUEST_BYTES", "1", "from 256KiB to 256MiB"),
        ("DRAIN_GRACE", "10", "write 10s"),
    ];
    for (name, value, what) in cases {
        let variable = format!("TOOLPULSE_{name}");
        let error = server(&[(&variable, value)]).unwrap_err();
        assert!(error.contains(what) && !error.contains("secret"), "{name}={value} gave {error:?}");
        let by_default = error.contains("by default");
        let place = format!("{} from environment variable {variable}: ", name.to_lowercase());
        assert!(by_default || error.starts_with(&place), "{error:?}");
    }
    let flag = layers(&[("probe_interval", "soon")], &[], None).unwrap().server().unwrap_err();
    assert_eq!(
        flag.to_string(),
        "probe_interval from flag --probe-interval: 'soon' is not a duration like 500ms, 30s or 5m"
    );
}

#[test]
fn good_values() {
    let cases: &[&[(&str, &str)]] = &[
        &[("TOOLPULSE_PROBE_INTERVAL", "1h")],
        &[
            ("TOOLPULSE_PROBE_INTERVAL", "1s"),
            ("TOOLPULSE_PROBE_TTL", "2s"),
            ("TOOLPULSE_PROBE_GRACE", "1551ms"),
        ],
        &[("TOOLPULSE_LISTEN", "[::1]:0"), ("TOOLPULSE_MAX_REQUEST_BYTES", "4194304")],
        &[("TOOLPULSE_PROBE_ALLOW", " 10.0.0.0/8,,::1, fe80::/10, a_b.c-d.")],
        &[("TOOLPULSE_LOG", "info,toolpulse=trace"), ("TOOLPULSE_STORE", "memory")],
    ];
    for env in cases {
        server(env).unwrap();
    }
}

#[test]
fn durations() {
    let ms = |n| Ok(Duration::from_millis(n));
    for (text, expected) in [
        ("500ms", ms(500)),
        ("30s", ms(30_000)),
        ("5m", ms(300_000)),
        ("1h 30m", ms(5_400_000)),
        ("0s", ms(0)),
    ] {
        assert_eq!(duration(text), expected, "{text}");
    }
    for wrong in ["", "30", "0", "s", "3 parsecs", "-1s", "99999999999999999999s", "\u{7}"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn servers() {
    for (text, url) in [
        ("http://127.0.0.1:50051", "http://127.0.0.1:50051"),
        ("tools.internal:80", "http://tools.internal:80"),
        ("http://[::1]:1/", "http://[::1]:1"),
        ("https://tools:443", "https://tools:443"),
    ] {
        let layers = layers(&[("server", text)], &[], None).unwrap();
        assert_eq!(layers.client().unwrap().server, url);
    }
    for (text, what) in [
        ("https://tools", "is not http://HOST:PORT"),
        ("tools.internal", "is not http://HOST:PORT"),
        ("http://a:1/path", "is not http://HOST:PORT"),
        ("ftp://a:1", "is not http://HOST:PORT"),
        ("u@a:1", "is not http://HOST:PORT"),
        ("a:0", "is not http://HOST:PORT"),
        ("", "is not http://HOST:PORT"),
    ] {
        let error = layers(&[("server", text)], &[], None).unwrap().client().unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
}

#[test]
fn unknown_variables_warn_and_service_links_do_not() {
    let silent = [
        ("TOOLPULSE_PORT", "tcp://10.0.0.1:50051"),
        ("TOOLPULSE_SERVICE_HOST", "10.0.0.1"),
        ("TOOLPULSE_SERVICE_PORT", "50051"),
        ("TOOLPULSE_SERVICE_PORT_GRPC", "50051"),
        ("TOOLPULSE_PORT_50051_TCP", "tcp://10.0.0.1:50051"),
        ("TOOLPULSE_PORT_50051_TCP_ADDR", "10.0.0.1"),
        ("TOOLPULSE_ADMIN_PORT_9091_TCP_PROTO", "tcp"),
        ("TOOLPULSE_ADMIN_SERVICE_HOST", "10.0.0.2"),
        ("TOOLPULSE_CONFIG", ""),
        ("TOOLPULSE_LISTEN", "127.0.0.1:0"),
        ("TOOLPULSE_ALLOWLIST_VAR", "TOOLPULSE_ALLOWED"),
        ("TOOLPULSE_ALLOWED", "search"),
        ("PATH", "/bin"),
    ];
    let all = layers(&[], &silent, None).unwrap();
    assert_eq!(all.warnings(), Vec::<String>::new());
    assert!(all.server().is_ok());

    for (name, hint) in [
        ("TOOLPULSE_PROBE_INTERVALL", "did you mean TOOLPULSE_PROBE_INTERVAL?"),
        ("TOOLPULSE_LOGFORMAT", "did you mean TOOLPULSE_LOG_FORMAT?"),
        ("TOOLPULSE_SERVR", "did you mean TOOLPULSE_SERVER?"),
        ("TOOLPULSE_COMPLETELY_DIFFERENT", "`toolpulse config print` lists the known ones"),
    ] {
        let warnings = layers(&[], &[(name, "1")], None).unwrap().warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(name) && warnings[0].contains(hint), "{warnings:?}");
    }
}

#[test]
fn the_allowlist_is_taken_as_it_is() {
    let some = |s: &str| Some(s.to_owned());
    let env = [("ALLOWED_TOOLS", ""), ("HERMES_ONLY_TOOLS", " a ,"), ("CI", "TRUE"), ("MINE", "b")];
    let read = |flags: &[(&'static str, &str)]| layers(flags, &env, None).unwrap().allowlist().unwrap();
    let plain = read(&[]);
    assert_eq!(
        (plain.allowed_tools, plain.hermes_only_tools, plain.ci),
        (some(""), some(" a ,"), some("TRUE"))
    );
    assert_eq!(plain.custom, None);
    assert_eq!(read(&[("allowlist_var", "MINE")]).custom, Some(("MINE".to_owned(), some("b"))));
    assert_eq!(read(&[("allowlist_var", "OTHER")]).custom, Some(("OTHER".to_owned(), None)));
    assert_eq!(read(&[("allowlist_var", "ALLOWED_TOOLS")]).custom, None, "the usual one");
}

#[test]
fn values_that_are_not_unicode() {
    let broken = OsString::from_vec(vec![b'a', 0xff]);
    for name in ["ALLOWED_TOOLS", "CI", "TOOLPULSE_LISTEN"] {
        let env = Environment::from_pairs([(name, broken.clone())]);
        let error = Layers::read(&[], None, &env).and_then(|l| l.server()).unwrap_err().to_string();
        assert_eq!(error, format!("{name} from the environment: the value is not valid UTF-8"));
    }
    let other = Environment::from_pairs([("LS_COLORS", broken)]);
    assert!(Layers::read(&[], None, &other).unwrap().server().is_ok(), "not ours");
}

use clap::{CommandFactory, Parser, error::ErrorKind};

use super::*;
use crate::config::Environment;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("toolpulse").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn good_lines() {
    for line in [
        "serve",
        "serve --listen 127.0.0.1:0 --store memory --manifest tools.yaml --log debug",
        "serve --gateway-status-tool --degraded-capabilities=false",
        "--config x.yaml serve",
        "serve --config x.yaml",
        "demo",
        "demo --once",
        "tools list",
        "tools list --all --output json",
        "tools --server a:1 list --allowed a,b --format openai-chat --hidden",
        "tools list --definitions --namespace prod",
        "tools get search",
        "tools watch",
        "tools watch --selector team=a --owner ann --output json",
        "tools watch --agent bot --allowed a,b --selector a --format openai-chat --visibility stable --max-tools 3 --max-tokens 9",
        "tools register a.yaml - --overwrite --force --owner me --validate-only --wait 10s --all-or-nothing",
        "tools list --format gemini-openapi --strict",
        "tools lint a.yaml - --format anthropic,bedrock --output json",
        "tools unregister a b --owner me --force",
        "tools probe a",
        "tools approve-labels a --namespace prod",
        "policy set bot --selector team=x --create-only",
        "status get",
        "status get gw",
        "status watch a b",
        "status report gw --run busy --queued 2 --sessions 1 --channel t=5 --degraded a=b --degraded c=d --detail x",
        "status report gw --error broken --ttl 30s --instance i --sequence 3",
        "status report gw --json -",
        "status report gw --queued -1",
        "allowlist check --allowed a,b",
        "healthcheck --service toolpulse.v1.ToolRegistryService --server 127.0.0.1:1",
        "config print --probe-interval 5s --server a:1 --output json",
        "store backup /tmp/x.db --data-dir /var/lib/toolpulse",
    ] {
        if let Err(e) = parse(line) {
            panic!("{line}: {e}");
        }
    }
}

#[test]
fn wrong_lines() {
    for (line, kind) in [
        ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ("tools", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ("sevre", ErrorKind::InvalidSubcommand),
        ("serve --lisen x", ErrorKind::UnknownArgument),
        ("serve --server a:1", ErrorKind::UnknownArgument),
        ("tools get", ErrorKind::MissingRequiredArgument),
        ("tools register", ErrorKind::MissingRequiredArgument),
        ("tools register x --wait 10", ErrorKind::ValueValidation),
        ("tools list --format xml", ErrorKind::InvalidValue),
        ("tools list --all --hidden", ErrorKind::ArgumentConflict),
        ("tools list --all --agent a", ErrorKind::ArgumentConflict),
        ("tools explain", ErrorKind::MissingRequiredArgument),
        ("tools watch --format mcp", ErrorKind::MissingRequiredArgument),
        ("tools watch --max-tools 3", ErrorKind::MissingRequiredArgument),
        ("tools watch --agent a --owner b", ErrorKind::ArgumentConflict),
        ("tools search --limit 5", ErrorKind::MissingRequiredArgument),
        ("policy set", ErrorKind::MissingRequiredArgument),
        ("policy set a --max-tools many", ErrorKind::ValueValidation),
        ("policy set a --create-only --etag x", ErrorKind::ArgumentConflict),
        ("status report gw --error x --run busy", ErrorKind::ArgumentConflict),
        ("status report gw --json x --queued 1", ErrorKind::ArgumentConflict),
        ("status report gw --degraded x", ErrorKind::ValueValidation),
        ("store backup", ErrorKind::MissingRequiredArgument),
        ("--version", ErrorKind::DisplayVersion),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.kind(), kind, "{line}: {error}");
        let usage = !matches!(kind, ErrorKind::DisplayVersion);
        assert_eq!(error.exit_code(), if usage { 2 } else { 0 }, "{line}");
    }
    let version = parse("--version").unwrap_err().to_string();
    assert_eq!(version, format!("toolpulse {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn flags_reach_the_settings() {
    let none = Environment::default();
    let layers = |line: &str| parse(line).unwrap().layers(&none).unwrap();
    let settings =
        layers("serve --probe-interval 5s --degraded-capabilities --log-format json").server().unwrap();
    assert_eq!(settings.probe.interval.as_secs(), 5);
    assert!(settings.degraded_capabilities && settings.log.json);
    for line in [
        "tools list --namespace prod --output json --server a:1",
        "policy list --namespace prod --output json --server a:1",
        "status --namespace prod get --output json --server a:1",
        "allowlist check --namespace prod --output json --server a:1",
        "healthcheck --namespace prod --output json --server a:1",
        "config print --namespace prod --output json --server a:1",
    ] {
        let client = layers(line).client().unwrap();
        let seen = (client.server.as_str(), client.namespace.as_str(), client.namespace_given, client.json);
        assert_eq!(seen, ("http://a:1", "prod", true, true), "{line}");
    }
    let backup = layers("store backup x --data-dir /d").data_dir().unwrap();
    assert_eq!(backup, std::path::Path::new("/d"));
}

#[test]
fn usage_errors_are_one_line() {
    for (line, told) in [
        (
            "statsu",
            "unrecognized subcommand 'statsu'; tip: a similar subcommand exists: 'status'; see --help",
        ),
        ("tools get", "the following required arguments were not provided: <NAME>; see --help"),
        (
            "tools register x --wait 10",
            "invalid value '10' for '--wait <DURATION>': '10' has no unit; write 10s for seconds; see --help",
        ),
    ] {
        assert_eq!(usage_line(&parse(line).unwrap_err().to_string()), told);
    }
}

#[test]
fn the_demo_logs_little_unless_it_is_told() {
    let filter = |line: &str, env: &[(&str, &str)]| {
        let environment = Environment::from_pairs(env.iter().copied());
        parse(line).unwrap().layers(&environment).unwrap().log().unwrap().filter
    };
    for (line, env, expected) in [
        ("demo", &[][..], "error"),
        ("demo --once", &[("TOOLPULSE_LOG", "")], "error"),
        ("demo --log debug", &[("TOOLPULSE_LOG", "warn")], "debug"),
        ("demo", &[("TOOLPULSE_LOG", "info")], "info"),
        ("serve", &[], "info"),
    ] {
        assert_eq!(filter(line, env), expected, "{line} {env:?}");
    }
}

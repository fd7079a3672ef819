//! The table of all settings: one row is a flag, an environment variable, a key of the file and a default at once.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::scalar::Scalar;

/// One setting, by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name in the file, and in messages.
    pub key: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Default, written as a user would; empty where there is none.
    pub default: &'static str,
}

macro_rules! options {
    ($( $(#[$group_meta:meta])* $group:ident {
        $( $key:ident, $variable:literal, $default:tt, $value:literal, $help:literal $(, #[$extra:meta])? ; )*
    } )*) => {
        $(
            $(#[$group_meta])*
            #[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
            pub struct $group {
                $(
                    #[doc = $help]
                    #[arg(long, value_name = $value, help = help!($help, $variable, $default))]
                    $(#[$extra])?
                    pub $key: Option<String>,
                )*
            }

            impl $group {
                /// The flags that were given, by the setting's name.
                pub fn given(&self) -> Vec<(&'static str, &str)> {
                    let all = [$( (stringify!($key), self.$key.as_deref()), )*];
                    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
                }
            }
        )*

        /// The file of settings, as it is written.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a mapping of settings")]
        pub(super) struct File {
            $($( $key: Option<Spanned<Scalar>>, )*)*
        }

        impl File {
            /// What the file sets: name, value, line.
            pub(super) fn given(self) -> Vec<(&'static str, String, u64)> {
                let all = [$($( (stringify!($key), self.$key), )*)*];
                all.into_iter()
                    .filter_map(|(key, value)| value.map(|v| (key, v.value.0, v.referenced.line())))
                    .collect()
            }
        }

        /// All settings, in the order in which they are printed.
        pub const OPTIONS: &[Setting] = &[$($(
            Setting { key: stringify!($key), variable: $variable, default: $default },
        )*)*];
    };
}

macro_rules! help {
    ($help:literal, $variable:literal, "") => {
        concat!($help, " [env: ", $variable, "]")
    };
    ($help:literal, $variable:literal, $default:literal) => {
        concat!($help, " [env: ", $variable, "] [default: ", $default, "]")
    };
}

options! {
    /// Settings of the log, for every command.
    LogFlags {
        log, "TOOLPULSE_LOG", "info", "FILTER",
            "What to log: a level, or directives like info,toolpulse::prober=debug", #[arg(global = true)];
        log_format, "TOOLPULSE_LOG_FORMAT", "text", "FORMAT",
            "Form of the log on stderr: text or json", #[arg(global = true)];
    }
    /// Settings of the server.
    ServerFlags {
        listen, "TOOLPULSE_LISTEN", "127.0.0.1:50051", "ADDR:PORT",
            "Address of the gRPC API; port 0 picks a free one";
        admin_listen, "TOOLPULSE_ADMIN_LISTEN", "127.0.0.1:9091", "ADDR:PORT",
            "Address of health, readiness and metrics; port 0 picks a free one";
        tls_cert, "TOOLPULSE_TLS_CERT", "", "FILE",
            "Certificate chain of the API in PEM, with tls_key; without it the API is plaintext; followed on change";
        tls_key, "TOOLPULSE_TLS_KEY", "", "FILE",
            "Private key of tls_cert in PEM";
        tls_client_ca, "TOOLPULSE_TLS_CLIENT_CA", "", "FILE",
            "Authorities of the clients' certificates in PEM; without it clients show none; followed on change";
        tls_client_auth, "TOOLPULSE_TLS_CLIENT_AUTH", "required", "WHEN",
            "With tls_client_ca: whether clients must have a certificate: required or optional";
        allow_plaintext, "TOOLPULSE_ALLOW_PLAINTEXT", "false", "BOOL",
            "Permit to listen without TLS on an address that is not loopback",
            #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")];
        store, "TOOLPULSE_STORE", "sqlite", "STORE",
            "Where tools are kept: sqlite (in the data directory) or memory (lost at the end)";
        data_dir, "TOOLPULSE_DATA_DIR", "./data", "DIR",
            "Directory of the sqlite store";
        manifest, "TOOLPULSE_MANIFEST", "", "FILE",
            "YAML or JSON file of declared tools, followed on change";
        probe_interval, "TOOLPULSE_PROBE_INTERVAL", "10s", "DURATION",
            "How often a tool is probed that does not say it itself (1s to 1h)";
        probe_timeout, "TOOLPULSE_PROBE_TIMEOUT", "", "DURATION",
            "Deadline of one probe, all in all (10ms to 1m); unset: min(3s, interval / 2)";
        probe_ttl, "TOOLPULSE_PROBE_TTL", "30s", "DURATION",
            "How long a result counts without a new one (at most 24h)";
        probe_grace, "TOOLPULSE_PROBE_GRACE", "30s", "DURATION",
            "How long a success outlives errors (at most 24h)";
        probe_egress, "TOOLPULSE_PROBE_EGRESS", "strict", "MODE",
            "Which targets may be probed: strict or cluster";
        probe_allow, "TOOLPULSE_PROBE_ALLOW", "", "LIST",
            "CIDRs, addresses and hosts that may be probed besides, separated by commas";
        probe_deny, "TOOLPULSE_PROBE_DENY", "", "LIST",
            "CIDRs, addresses, hosts and *:PORTs that are never probed, whatever permits them, separated by commas";
        secrets_dir, "TOOLPULSE_SECRETS_DIR", "", "DIR",
            "Directory of the secrets that probes may refer to: files NAME, each with its hosts in NAME.hosts";
        probe_insecure_tls, "TOOLPULSE_PROBE_INSECURE_TLS", "false", "BOOL",
            "Permit probes that verify no certificate (insecure_skip_verify)",
            #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")];
        probe_canary, "TOOLPULSE_PROBE_CANARY", "", "HOST:PORT",
            "What takes connections wherever the network works: asked only while most of what is probed fails at once";
        allowlist_var, "TOOLPULSE_ALLOWLIST_VAR", "", "NAME",
            "Environment variable that holds the allowlist, instead of ALLOWED_TOOLS";
        strict_wait, "TOOLPULSE_STRICT_WAIT", "0s", "DURATION",
            "With CI set: how long to wait for the allowlist's names before giving up";
        default_policy, "TOOLPULSE_DEFAULT_POLICY", "allow", "POLICY",
            "What agents without a policy may see: allow (no restriction) or deny (nothing)";
        gateway_status_tool, "TOOLPULSE_GATEWAY_STATUS_TOOL", "false", "BOOL",
            "Offer the built-in tool gateway_status to agents",
            #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")];
        degraded_capabilities, "TOOLPULSE_DEGRADED_CAPABILITIES", "false", "BOOL",
            "Join capability:TOOL to the degraded list of a gateway for each tool that does not work",
            #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")];
        watch_coalesce, "TOOLPULSE_WATCH_COALESCE", "100ms", "DURATION",
            "Shortest time between two changes on a watch";
        watch_heartbeat, "TOOLPULSE_WATCH_HEARTBEAT", "15s", "DURATION",
            "Time between heartbeats of a quiet watch";
        watch_max_age, "TOOLPULSE_WATCH_MAX_AGE", "30m", "DURATION",
            "Age at which a watch is ended with goodbye";
        watch_stall, "TOOLPULSE_WATCH_STALL", "60s", "DURATION",
            "How long a watch's reader may take nothing until its connection is closed";
        keepalive_interval, "TOOLPULSE_KEEPALIVE_INTERVAL", "20s", "DURATION",
            "How often a quiet connection is pinged";
        keepalive_timeout, "TOOLPULSE_KEEPALIVE_TIMEOUT", "10s", "DURATION",
            "How long the answer to a ping may take until the connection is closed";
        max_watches, "TOOLPULSE_MAX_WATCHES", "20000", "N",
            "How many watches may be open";
        max_watches_per_peer, "TOOLPULSE_MAX_WATCHES_PER_PEER", "1000", "N",
            "How many watches one peer address may have open";
        max_request_bytes, "TOOLPULSE_MAX_REQUEST_BYTES", "16MiB", "SIZE",
            "Largest request message";
        drain_lame_duck, "TOOLPULSE_DRAIN_LAME_DUCK", "0s", "DURATION",
            "At shutdown: how long to go on serving while health says NOT_SERVING";
        drain_spread, "TOOLPULSE_DRAIN_SPREAD", "3s", "DURATION",
            "At shutdown: over how long the ends of open streams are spread";
        drain_grace, "TOOLPULSE_DRAIN_GRACE", "10s", "DURATION",
            "At shutdown: how long calls in flight may take";
    }
    /// Settings of the commands that talk to a server.
    ClientFlags {
        server, "TOOLPULSE_SERVER", "http://127.0.0.1:50051", "ADDR",
            "Server to talk to: http://HOST:PORT or HOST:PORT, or https://HOST:PORT", #[arg(global = true)];
        server_ca, "TOOLPULSE_SERVER_CA", "", "FILE",
            "With https: authorities of the server's certificate in PEM, instead of the public ones", #[arg(global = true)];
        client_cert, "TOOLPULSE_CLIENT_CERT", "", "FILE",
            "With https: certificate to show to the server in PEM, with client_key", #[arg(global = true)];
        client_key, "TOOLPULSE_CLIENT_KEY", "", "FILE",
            "Private key of client_cert in PEM", #[arg(global = true)];
        namespace, "TOOLPULSE_NAMESPACE", "default", "NAME",
            "Namespace to work in", #[arg(global = true)];
        output, "TOOLPULSE_OUTPUT", "table", "FORMAT",
            "Form of the output: table or json", #[arg(global = true)];
    }
}

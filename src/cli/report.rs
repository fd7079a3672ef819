//! `status report`: one report of a gateway, from flags or from the JSON that its tool would print.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Read},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Failure,
    client::{self, CALL, request},
    print,
};
use crate::{
    config::{self, ClientSettings},
    proto::v1::{
        DegradedOwner, GatewayStatus, ReportGatewayStatusRequest, report_gateway_status_request::Report,
    },
};

/// Largest file of a status; every server refuses less.
const MAX_FILE: u64 = 16 << 20;

/// What to report.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// The gateway's id
    pub id: String,
    /// What it does: idle, busy, queued or another word
    #[arg(long, default_value = "", hide_default_value = true)]
    pub run: String,
    /// Turns that wait
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub queued: i64,
    /// Sessions that are open
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub sessions: i64,
    /// Sessions of a channel; repeat for each
    #[arg(long, value_name = "CHANNEL=N", value_parser = channel)]
    pub channel: Vec<(String, i64)>,
    /// Facts about delivery: a JSON object
    #[arg(long, value_name = "JSON", default_value = "", hide_default_value = true)]
    pub delivery: String,
    /// What is configured but does not work; repeat for each
    #[arg(long, value_name = "OWNER=REASON", value_parser = degraded)]
    pub degraded: Vec<(String, String)>,
    /// Anything else that the model should know
    #[arg(long, default_value = "", hide_default_value = true)]
    pub detail: String,
    /// Report that reading the status failed, and why
    #[arg(long, value_name = "TEXT", conflicts_with_all = STATUS_FLAGS)]
    pub error: Option<String>,
    /// Take the status from a file with the seven fields as JSON; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = STATUS_FLAGS, conflicts_with = "error")]
    pub json: Option<PathBuf>,
    /// How long the report counts
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    pub ttl: Option<Duration>,
    /// Name of this run of the gateway's process
    #[arg(long, default_value = "", hide_default_value = true)]
    pub instance: String,
    /// Number of the report; grows within an instance
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub sequence: u64,
}

const STATUS_FLAGS: [&str; 7] = ["run", "queued", "sessions", "channel", "delivery", "degraded", "detail"];

fn channel(text: &str) -> Result<(String, i64), String> {
    let parts = text.rsplit_once('=').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    parts.ok_or_else(|| "must be CHANNEL=NUMBER, for example telegram=5".to_owned())
}

fn degraded(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').map(|(owner, reason)| (owner.to_owned(), reason.to_owned()));
    parts
        .ok_or_else(|| "must be OWNER=REASON, for example channel:telegram=credential_unavailable".to_owned())
}

/// A status as it is printed: the seven fields, each with its default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StatusFile {
    run: String,
    queued: i64,
    active_sessions: i64,
    sessions_by_channel: BTreeMap<String, i64>,
    delivery: Map<String, Value>,
    degraded: Vec<DegradedForm>,
    detail: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DegradedForm {
    owner: String,
    reason: String,
}

pub(super) async fn run(args: ReportArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let message = ReportGatewayStatusRequest {
        namespace: settings.namespace.to_string(),
        gateway_id: args.id.clone(),
        instance: args.instance.clone(),
        sequence: args.sequence,
        ttl: args.ttl.and_then(|ttl| ttl.try_into().ok()),
        observed_at: None,
        report: Some(report(args)?),
    };
    let reply = client::gateways(settings).await?.report_gateway_status(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        print::json(&json!({"accepted": reply.accepted, "epoch": reply.epoch, "revision": reply.revision}))?;
    } else if reply.accepted {
        print::line("accepted")?;
    }
    if reply.accepted {
        return Ok(());
    }
    Err(Failure::Failed("not accepted: the server has a newer report of this instance".to_owned()))
}

fn report(args: ReportArgs) -> Result<Report, Failure> {
    if let Some(error) = args.error {
        return Ok(Report::Error(error));
    }
    if let Some(file) = args.json {
        return Ok(Report::Status(from_file(&file)?));
    }
    let degraded = args.degraded.into_iter().map(|(owner, reason)| DegradedOwner { owner, reason });
    Ok(Report::Status(GatewayStatus {
        run: args.run,
        queued: args.queued,
        active_sessions: args.sessions,
        sessions_by_channel: args.channel.into_iter().collect(),
        delivery_json: args.delivery,
        degraded: degraded.collect(),
        detail: args.detail,
    }))
}

fn from_file(file: &PathBuf) -> Result<GatewayStatus, Failure> {
    let mut text = String::new();
    let done = if file.as_os_str() == "-" {
        io::stdin().lock().take(MAX_FILE).read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|f| f.take(MAX_FILE).read_to_string(&mut text))
    };
    done.map_err(|e| Failure::Failed(format!("cannot read {}: {e}", file.display())))?;
    from_text(&text).map_err(|e| Failure::Failed(format!("{}: {e}", file.display())))
}

fn from_text(text: &str) -> Result<GatewayStatus, serde_json::Error> {
    // An array would be taken for the fields in their order.
    let fields: Map<String, Value> = serde_json::from_str(text)?;
    let status: StatusFile = serde_json::from_value(Value::Object(fields))?;
    let degraded = status.degraded.into_iter();
    Ok(GatewayStatus {
        run: status.run,
        queued: status.queued,
        active_sessions: status.active_sessions,
        sessions_by_channel: status.sessions_by_channel.into_iter().collect::<HashMap<_, _>>(),
        delivery_json: if status.delivery.is_empty() {
            String::new()
        } else {
            Value::from(status.delivery).to_string()
        },
        degraded: degraded.map(|d| DegradedOwner { owner: d.owner, reason: d.reason }).collect(),
        detail: status.detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_from_its_printed_form() {
        let text = r#"{"run": "busy", "queued": 2, "active_sessions": 3, "sessions_by_channel": {"telegram": 5},
            "delivery": {"outbox_depth": 0, "dlq": 1.0}, "degraded": [{"owner": "a:b", "reason": "c"}], "detail": "d"}"#;
        let status = from_text(text).unwrap();
        assert_eq!((status.run.as_str(), status.queued, status.active_sessions), ("busy", 2, 3));
        assert_eq!(status.sessions_by_channel["telegram"], 5);
        assert_eq!(status.delivery_json, r#"{"outbox_depth":0,"dlq":1.0}"#);
        assert_eq!((status.degraded[0].owner.as_str(), status.degraded[0].reason.as_str()), ("a:b", "c"));
        assert_eq!(from_text("{}").unwrap(), GatewayStatus::default());
        for wrong in ["", "[]", r#"{"running": 1}"#, r#"{"queued": 1.5}"#, r#"{"queued": NaN}"#] {
            assert!(from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!(channel("telegram=5"), Ok(("telegram".to_owned(), 5)));
        assert_eq!(degraded("channel:x=why=not"), Ok(("channel:x".to_owned(), "why=not".to_owned())));
        for wrong in ["telegram", "telegram=many"] {
            assert!(channel(wrong).is_err(), "{wrong}");
        }
        assert!(degraded("x").is_err());
    }
}

//! `allowlist check`: what the allowlist does, in the form of the diagnostics block; an exit code for pipelines.

use clap::Subcommand;

use super::{
    Client, Failure,
    client::{self, CALL, request},
    json, print,
};
use crate::{
    config::ClientSettings,
    proto::v1::{AllowedTools, GetAllowlistDiagnosticsRequest, GetAllowlistDiagnosticsResponse},
};

/// Width of the rules around the block.
const RULE: usize = 50;

pub(super) type AllowlistArgs = Client<AllowlistCommand>;

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum AllowlistCommand {
    /// Print the diagnostics, of all namespaces unless --namespace is given; exit code 1 if a name is unknown
    Check {
        /// A request's own allowlist, to be intersected with the server's
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        allowed: Option<Vec<String>>,
        /// As this agent: its policy applies, and what it may not know of is not named
        #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
        agent: String,
    },
}

pub(super) async fn run(command: AllowlistCommand, settings: &ClientSettings) -> Result<(), Failure> {
    let AllowlistCommand::Check { allowed, agent } = command;
    let namespace = if settings.namespace_given { settings.namespace.to_string() } else { String::new() };
    let message = GetAllowlistDiagnosticsRequest {
        namespace,
        allowed_tools: allowed.map(|names| AllowedTools { names }),
        agent_id: agent,
    };
    let mut client = client::tools(settings).await?;
    let reply = client.get_allowlist_diagnostics(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        print::json(&json::diagnostics(&reply))?;
    } else {
        print::line(&block(&reply))?;
    }
    if reply.unknown_tools.is_empty() { Ok(()) } else { Err(Failure::Silent(1)) }
}

/// The block as it is logged at start, and what is not in it.
fn block(d: &GetAllowlistDiagnosticsResponse) -> String {
    let rule = "=".repeat(RULE);
    let mut lines = vec![
        rule.clone(),
        "ALLOWED_TOOLS FILTER DIAGNOSTICS".to_owned(),
        rule.clone(),
        format!("{}={}", d.env_var_name, print::cell(d.env_value.as_deref().unwrap_or("<unset>"))),
        format!("RegisteredBeforeFilter={}", python_list(&d.registered_before_filter)),
        format!("RegisteredAfterFilter={}", python_list(&d.registered_after_filter)),
        format!("DroppedTools={}", python_list(&d.dropped_tools)),
        format!("UnknownTools={}", python_list(&d.unknown_tools)),
        format!("IsCI={}", if d.is_ci { "True" } else { "False" }),
        rule,
    ];
    lines.extend(d.collisions.iter().map(|c| {
        format!(
            "Collision: {}/{} is held by '{}' and was offered by '{}'",
            c.namespace, c.name, c.owner, c.offered_by
        )
    }));
    lines.join("\n")
}

/// A list of texts as Python prints it.
fn python_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| python_text(item)).collect();
    format!("[{}]", items.join(", "))
}

fn python_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Collision;

    #[test]
    fn the_block() {
        let texts = |items: &[&str]| items.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let mut reply = GetAllowlistDiagnosticsResponse {
            env_var_name: "ALLOWED_TOOLS".to_owned(),
            env_value: Some("a, nope".to_owned()),
            is_ci: true,
            whitelist: None,
            registered_before_filter: texts(&["a", "b"]),
            registered_after_filter: texts(&["a"]),
            dropped_tools: texts(&["b"]),
            unknown_tools: texts(&["it's", "no\"pe\n", "'\""]),
            collisions: vec![],
        };
        let rule = "=".repeat(50);
        let expected = format!(
            "{rule}\nALLOWED_TOOLS FILTER DIAGNOSTICS\n{rule}\nALLOWED_TOOLS=a, nope\n\
             RegisteredBeforeFilter=['a', 'b']\nRegisteredAfterFilter=['a']\nDroppedTools=['b']\n\
             UnknownTools=[\"it's\", 'no\"pe\\n', '\\'\"']\nIsCI=True\n{rule}"
        );
        assert_eq!(block(&reply), expected);

        reply.env_value = None;
        let owner = |s: &str| s.to_owned();
        reply.collisions = vec![Collision {
            namespace: owner("default"),
            name: owner("a"),
            owner: owner("x"),
            offered_by: owner("y"),
        }];
        let text = block(&reply);
        assert!(text.contains("\nALLOWED_TOOLS=<unset>\n"), "{text}");
        assert!(text.ends_with("\nCollision: default/a is held by 'x' and was offered by 'y'"), "{text}");
    }
}

//! `config print`: the effective settings, and where each comes from.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Failure, print};
use crate::config::{ClientFlags, Layers, Origin, ServerFlags};

/// Settings to look at.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective settings with the layer that each comes from
    Print {
        /// Settings of the server.
        #[command(flatten)]
        server: Box<ServerFlags>,
        /// Settings of the client commands.
        #[command(flatten)]
        client: Box<ClientFlags>,
    },
}

/// One setting as it is printed.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    /// Unset: none.
    value: Option<String>,
    layer: &'static str,
    /// Flag, variable, or line of the file.
    set_by: String,
}

impl ConfigArgs {
    pub(super) fn given(&self) -> Vec<(&'static str, &str)> {
        let ConfigCommand::Print { server, client } = &self.command;
        let mut given = server.given();
        given.extend(client.given());
        given
    }
}

pub(super) fn run(_args: &ConfigArgs, layers: &Layers) -> Result<(), Failure> {
    // A wrong setting is an error here as well as where it is used.
    let client = layers.client()?;
    layers.server()?;
    let rows = rows(layers)?;
    if client.json {
        let settings = rows.iter().map(
            |row| json!({"name": row.name, "value": row.value, "layer": row.layer, "set_by": row.set_by}),
        );
        return print::json(&json!({"settings": settings.collect::<Vec<_>>()}));
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| vec![row.name, row.value.unwrap_or_default(), row.layer.to_owned(), row.set_by])
        .collect();
    print::table(&["SETTING", "VALUE", "LAYER", "SET BY"], &rows)
}

fn rows(layers: &Layers) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = layers
        .all()
        .map(|effective| Row {
            name: effective.setting.key.to_owned(),
            value: Some(effective.text.clone()).filter(|text| !text.is_empty()),
            layer: effective.origin.layer(),
            set_by: match &effective.origin {
                Origin::Flag => format!("--{}", effective.setting.key.replace('_', "-")),
                Origin::Environment => effective.setting.variable.to_owned(),
                Origin::File(file, line) => format!("{file} line {line}"),
                Origin::Default => String::new(),
            },
        })
        .collect();
    // Not ours by name, but they decide what agents see.
    let allowlist = layers.allowlist()?;
    let mut variables = vec![
        ("ALLOWED_TOOLS".to_owned(), allowlist.allowed_tools),
        ("HERMES_ONLY_TOOLS".to_owned(), allowlist.hermes_only_tools),
        ("CI".to_owned(), allowlist.ci),
    ];
    variables.extend(allowlist.custom);
    rows.extend(variables.into_iter().filter_map(|(name, value)| {
        let value = Some(value?);
        Some(Row { set_by: name.clone(), name, value, layer: Origin::Environment.layer() })
    }));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, OPTIONS};

    #[test]
    fn every_setting_is_printed_with_its_layer() {
        let env = [("TOOLPULSE_STORE", "memory"), ("CI", "true"), ("MINE", "a,b"), ("ALLOWED_TOOLS", "")];
        let env = Environment::from_pairs(env);
        let flags = [("probe_interval", "5s"), ("allowlist_var", "MINE")];
        let layers = Layers::read(&flags, None, &env).unwrap();
        let rows = rows(&layers).unwrap();
        assert_eq!(rows.len(), OPTIONS.len() + 3);
        let find = |name: &str| {
            let row = rows.iter().find(|row| row.name == name).unwrap();
            (row.value.as_deref(), row.layer, row.set_by.as_str())
        };
        assert_eq!(find("probe_interval"), (Some("5s"), "flag", "--probe-interval"));
        assert_eq!(find("store"), (Some("memory"), "environment", "TOOLPULSE_STORE"));
        assert_eq!(find("listen"), (Some("127.0.0.1:50051"), "default", ""));
        assert_eq!(find("probe_timeout"), (None, "default", ""));
        assert_eq!(find("CI"), (Some("true"), "environment", "CI"));
        assert_eq!(find("MINE"), (Some("a,b"), "environment", "MINE"));
        assert_eq!(find("ALLOWED_TOOLS"), (Some(""), "environment", "ALLOWED_TOOLS"));
    }
}

//! The command line: what there is to say, and the commands that talk to a server.

mod allowlist;
mod client;
mod config;
mod definitions;
pub mod demo;
mod explain;
mod failure;
mod health;
mod json;
mod lint;
mod policy;
mod print;
mod register;
mod report;
mod selection;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod tools;
mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, error::ErrorKind};

pub use self::failure::Failure;
use crate::config::{ClientFlags, Environment, Layers, LogFlags, ServerFlags};

/// A registry for the tools that AI agents call: probed on a timer, listed only while they work.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "toolpulse",
    version,
    about,
    after_help = "Settings: flags over environment over file over defaults; `toolpulse config print` shows them.\n\
                  Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 unhealthy (healthcheck)."
)]
pub struct Cli {
    /// YAML file of settings [env: TOOLPULSE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How to log.
    #[command(flatten)]
    pub log: LogFlags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Box<ServerFlags>),
    /// Show everything at work: a server, targets that fail and recover, an agent that watches
    Demo(demo::DemoArgs),
    /// Look at tools, register and unregister them
    Tools(tools::ToolsArgs),
    /// Look at what agents may see at most, and set it
    Policy(policy::PolicyArgs),
    /// Look at the status of gateways, and report it
    Status(status::StatusArgs),
    /// Look at what the allowlist does
    Allowlist(allowlist::AllowlistArgs),
    /// Ask a server for its health: exit code 0 if it serves, else 3
    Healthcheck(health::HealthArgs),
    /// Look at the settings
    Config(config::ConfigArgs),
    /// Look after the store
    Store(store::StoreArgs),
}

/// A command and the flags that say where the server is.
#[derive(Clone, Debug, Args)]
pub struct Client<T: Subcommand> {
    /// Where the server is, and how to print.
    #[command(flatten)]
    pub client: ClientFlags,
    /// What to do.
    #[command(subcommand)]
    pub command: T,
}

impl Cli {
    /// Parses the command line of the process; prints help and version itself.
    ///
    /// # Errors
    /// The line is wrong (code 2), or all it asked for is printed (code 0).
    pub fn from_process() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| {
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
                || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            {
                let code = if error.use_stderr() { 2 } else { 0 };
                return error.print().map_or_else(Failure::from, |()| Failure::Silent(code));
            }
            Failure::Usage(usage_line(&error.to_string()))
        })
    }

    /// The settings that this command line, the environment and the file make.
    ///
    /// # Errors
    /// A layer can't be read.
    pub fn layers(&self, environment: &Environment) -> Result<Layers, Failure> {
        let mut flags = self.log.given();
        match &self.command {
            Command::Serve(server) => flags.extend(server.given()),
            Command::Demo(_) => {}
            Command::Tools(args) => flags.extend(args.client.given()),
            Command::Policy(args) => flags.extend(args.client.given()),
            Command::Status(args) => flags.extend(args.client.given()),
            Command::Allowlist(args) => flags.extend(args.client.given()),
            Command::Healthcheck(args) => flags.extend(args.client.given()),
            Command::Config(args) => flags.extend(args.given()),
            Command::Store(args) => flags.extend(args.given()),
        }
        let layers = Layers::read(&flags, self.config.as_deref(), environment)?;
        Ok(match self.command {
            Command::Demo(_) => layers.with_default("log", demo::LOG),
            _ => layers,
        })
    }
}

/// What is wrong with a command line, out of the parser's text of several paragraphs.
fn usage_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let told = text[..end.unwrap_or(text.len())].trim().replace("\n\n", "; ");
    format!("{}; see --help", told.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Command {
    /// Runs a command that is no server of its own. `serve` and `demo` are main's.
    ///
    /// # Errors
    /// Why the process ends with another code than 0.
    pub async fn run(self, layers: &Layers) -> Result<(), Failure> {
        match self {
            Self::Serve(_) | Self::Demo(_) => Ok(()),
            Self::Tools(args) => match args.command {
                tools::ToolsCommand::Lint(lint) => {
                    let judge = crate::app::judge(&layers.server()?);
                    let judge = judge.map_err(|e| Failure::Usage(e.to_string()))?;
                    lint::run(&lint, &layers.client()?, &judge).await
                }
                command => tools::run(command, &layers.client()?).await,
            },
            Self::Policy(args) => policy::run(args.command, &layers.client()?).await,
            Self::Status(args) => status::run(args.command, &layers.client()?).await,
            Self::Allowlist(args) => allowlist::run(args.command, &layers.client()?).await,
            Self::Healthcheck(args) => health::run(&args, &layers.client()?).await,
            Self::Config(args) => config::run(&args, layers),
            Self::Store(args) => store::run(args.command, layers),
        }
    }
}

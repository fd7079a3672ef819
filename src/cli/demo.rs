//! The demo.

use clap::Args;

use super::Failure;

/// How to show it.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArgs {
    /// End by itself when the story is told
    #[arg(long)]
    pub once: bool,
}

/// Runs the demo.
///
/// # Errors
/// Why it ended.
pub async fn run(_args: DemoArgs) -> Result<(), Failure> {
    Err(Failure::Failed("this build has no demo".to_owned()))
}

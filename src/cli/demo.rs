//! `demo`: everything at work in one process, told as a story. With `--once` it is a smoke test: what does not come true in
//! time ends it with code 1.

mod api;
mod explore;
mod gateway;
mod narration;
mod signals;
mod stage;
mod story;
mod targets;

use clap::Args;

use self::{narration::Narrator, signals::Signals, stage::Stage};
use super::Failure;

/// What the demo logs unless it is told: the story expects warnings, and tells of them in its own words.
pub(super) const LOG: &str = "error";

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
/// The story did not come true, or the server failed.
pub async fn run(args: DemoArgs) -> Result<(), Failure> {
    let narrator = Narrator::new();
    let mut signals = Signals::listen()?;
    let mut stage = Stage::build().await?;
    let told = tokio::select! {
        told = Box::pin(show(args, &mut stage, &narrator)) => told,
        () = signals.next() => {
            let ended_early = args.once.then(|| "a signal came before the story was told".to_owned());
            ended_early.map_or(Ok(()), |why| Err(Failure::Failed(why)))
        }
    };
    // A server that failed is the cause of whatever did not come true.
    stage.strike(&mut signals).await.and(told)
}

/// The story; then, unless once is enough, the server goes on until it fails.
async fn show(args: DemoArgs, stage: &mut Stage, narrator: &Narrator) -> Result<(), Failure> {
    story::tell(stage, narrator).await?;
    if args.once {
        return Ok(());
    }
    explore::print(stage, narrator)?;
    let api = stage.api.clone();
    tokio::select! {
        () = gateway::go_on(&api) => Ok(()),
        failure = stage.broken() => Err(failure),
    }
}

//! Parses the command line, starts what it asks for, and turns the end into an exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use toolpulse::{
    app,
    cli::{Cli, Command, Failure, demo},
    config::Environment,
    telemetry,
};

fn main() -> ExitCode {
    let Err(failure) = Cli::from_process().and_then(run) else { return ExitCode::SUCCESS };
    if let Some(line) = failure.line() {
        // Nothing can be done where even stderr is gone.
        let _ = writeln!(io::stderr(), "{line}");
    }
    ExitCode::from(failure.exit_code())
}

fn run(cli: Cli) -> Result<(), Failure> {
    let layers = cli.layers(&Environment::of_process())?;
    let _log = telemetry::init(&layers.log()?).map_err(Failure::Usage)?;
    for warning in layers.warnings() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    let result = runtime.block_on(async {
        match cli.command {
            Command::Serve(_) => {
                let settings = layers.server()?;
                Box::pin(app::serve(settings)).await.map_err(|e| e.into_failure())
            }
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            command => Box::pin(command.run(&layers)).await,
        }
    });
    // A name look-up or a read of stdin that hangs must not keep the process.
    runtime.shutdown_background();
    result
}

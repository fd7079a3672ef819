//! `store`: work on the files of the store itself.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Failure, print};
use crate::{config::Layers, store::backup_file};

/// Which store, and what to do.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// Directory of the sqlite store [env: TOOLPULSE_DATA_DIR] [default: ./data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy the store to a new file; a server may be running on it
    Backup {
        /// The file to write
        file: PathBuf,
    },
}

impl StoreArgs {
    pub(super) fn given(&self) -> Vec<(&'static str, &str)> {
        self.data_dir.as_deref().map(|dir| ("data_dir", dir)).into_iter().collect()
    }
}

pub(super) fn run(command: StoreCommand, layers: &Layers) -> Result<(), Failure> {
    let StoreCommand::Backup { file } = command;
    let data_dir = layers.data_dir()?;
    backup_file(&data_dir, &file).map_err(|e| Failure::Failed(e.to_string()))?;
    print::line(&format!("{} is backed up to {}", data_dir.display(), file.display()))
}

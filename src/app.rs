//! The composition root.

use crate::{cli::Failure, config::Settings};

/// Why the server ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It could not be put together.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// As the command line tells it.
    pub fn into_failure(self) -> Failure {
        Failure::Failed(self.to_string())
    }
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// Why it ended.
pub async fn serve(_settings: Settings) -> Result<(), Error> {
    Err(Error::Failed("this build has no server".to_owned()))
}

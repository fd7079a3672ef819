//! The `tcp` kind: a connection is a pass. It is closed at once, and nothing is sent.

use super::{Failure, Progress, dial::Dialer};
use crate::core::probe::{Outcome, TcpProbe};

pub(super) async fn run(
    dialer: &Dialer,
    probe: &TcpProbe,
    progress: &mut Progress,
) -> Result<Outcome, Failure> {
    dialer.tcp(&probe.address, progress).await.map(|_closed| Outcome::Pass)
}

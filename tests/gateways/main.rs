//! The status of gateways as clients see it: the real owner, catalog and service over loopback, in one runtime whose clock is
//! paused.

#![allow(clippy::unwrap_used)]

mod limits;
mod model;
mod publish;
mod reads;
mod watch;
mod world;

//! The Helm chart, rendered by the real Helm 3 and 4.
//!
//! `tests/run` fetches both and says where they are. Without them nothing is checked, and that is noted.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod documented;
mod effects;
mod faults;
mod golden;
mod helm;
mod kubernetes;
mod package;
mod pod;
mod refused;
mod rendered;
mod server;
mod upgrade;

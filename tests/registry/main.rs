//! The registry as its clients see it: the whole server over loopback, under a paused clock.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod availability;
mod expiry;
mod leaks;
mod listing;
mod owners;
mod probing;
mod reading;
mod recalling;
mod replacing;
mod schedule;
mod settling;
mod sleeping;
mod stumbling;
mod suspicion;
mod thresholds;

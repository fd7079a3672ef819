//! The watches of tools as their readers see them: the whole server over loopback, under a paused clock.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod cost;
mod ends;
mod model;
mod operator;
mod reader;
mod resume;

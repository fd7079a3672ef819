//! The container image: what is in it, what it says of itself, and that it runs in a root with nothing else.
//!
//! `tests/run` builds it with buildah and says where it is. Without it nothing is checked, and that is noted.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod contents;
mod running;

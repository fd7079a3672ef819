//! The store: one suite for both engines, then what only a file can suffer.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod file;
mod process;
mod suite;
mod values;

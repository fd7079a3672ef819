//! The rules, pure: no async, no I/O, no wire types, no clock. `now` is always an argument.

pub mod allowlist;
pub mod availability;
pub mod gateway;
pub mod hash;
pub mod labels;
pub mod name;
pub mod policy;
pub mod probe;
pub mod python;
pub mod refusal;
pub mod registry;
pub mod schedule;
pub mod schema;
pub mod suspicion;
pub mod time;
pub mod tool;

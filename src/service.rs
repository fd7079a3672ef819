//! The gRPC services, one file each: parse, ask the core, reply. The only place where wire types live.

pub mod convert;
pub mod deadline;
pub mod error;
pub mod gateway;
pub mod health;
pub mod page;
pub mod policy;
mod prepared;
pub mod reflection;
pub mod rpc;
pub mod tools;
pub mod watch;

//! The gRPC services, thin: parse at the edge, ask the core, reply.

pub mod convert;
pub mod page;

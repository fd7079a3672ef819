//! Toolpulse: a gRPC registry for the tools that AI agents call.

pub mod admin;
pub mod app;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod core;
pub mod grpc_code;
pub mod manifest;
pub mod metrics;
pub mod owner;
pub mod prober;
pub mod render;
pub mod serve;
pub mod service;
pub mod store;
pub mod telemetry;

/// The wire types, generated from `proto/`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod proto {
    /// Toolpulse's own API.
    pub mod v1 {
        tonic::include_proto!("toolpulse.v1");
    }
    /// The health protocol, with `List`.
    pub mod health {
        tonic::include_proto!("grpc.health.v1");
    }
    /// Descriptors of everything above, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}

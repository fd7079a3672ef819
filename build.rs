//! Compiles `proto/` without `protoc`, and keeps the descriptors for the reflection service.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const ROOTS: [&str; 6] = [
    "toolpulse/v1/position.proto",
    "toolpulse/v1/tool.proto",
    "toolpulse/v1/tool_registry.proto",
    "toolpulse/v1/agent_policy.proto",
    "toolpulse/v1/gateway_status.proto",
    "grpc/health/v1/health.proto",
];

/// Messages that may hold a credential.
const HIDDEN: [&str; 4] =
    ["toolpulse.v1.HttpProbe", "toolpulse.v1.McpProbe", "toolpulse.v1.ProbeHeader", "toolpulse.v1.ProbeBody"];

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script things through the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(ROOTS, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // What may hold a credential is printed by hand, in src/service/convert/hidden.rs.
        .skip_debug(HIDDEN)
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        .compile_fds(descriptors)?;
    Ok(())
}

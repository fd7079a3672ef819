//! Server reflection, so that `buf curl`, grpcurl and the like work without our proto files. Old tools speak v1alpha only.

use tonic::service::RoutesBuilder;
use tonic_reflection::server::{Builder, Error};

use crate::proto::DESCRIPTORS;

/// The paths of the reflection methods, which are not among our own descriptors.
pub(crate) const METHODS: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Adds both versions of the service.
pub fn add_to(routes: &mut RoutesBuilder) -> Result<(), Error> {
    routes.add_service(builder().build_v1()?).add_service(builder().build_v1alpha()?);
    Ok(())
}

fn builder() -> Builder<'static> {
    Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS)
}

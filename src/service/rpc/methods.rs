//! The methods that there are, from the descriptors: what clients call is theirs to choose, what is counted is not.

use std::collections::HashMap;

use prost::Message;
use prost_types::FileDescriptorSet;

use crate::{
    metrics::{Calls, Metrics},
    proto::DESCRIPTORS,
    service::reflection,
};

/// One method.
#[derive(Clone, Debug)]
pub(super) struct Method {
    /// Counts how its calls end.
    pub(super) calls: Calls,
    /// Whether it is one of ours.
    pub(super) known: bool,
    /// Whether its reply is a stream.
    pub(super) streams: bool,
}

/// All methods by path.
#[derive(Debug)]
pub(super) struct Methods {
    by_path: HashMap<String, Method>,
    other: Method,
}

impl Methods {
    /// Counts in `metrics`.
    pub(super) fn load(metrics: &Metrics) -> Self {
        // The bytes were written by build.rs of this very build; a test decodes them. Without them nothing would be known.
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
        let mut by_path = HashMap::new();
        let mut add = |name: String, streams| {
            let method = Method { calls: metrics.calls(&name), known: true, streams };
            by_path.insert(format!("/{name}"), method);
        };
        for file in &files.file {
            for service in &file.service {
                for method in &service.method {
                    let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    add(name, method.server_streaming());
                }
            }
        }
        for name in reflection::METHODS {
            add(name.to_owned(), true);
        }
        let other = Method { calls: metrics.calls("_OTHER"), known: false, streams: false };
        Self { by_path, other }
    }

    pub(super) fn find(&self, path: &str) -> Method {
        self.by_path.get(path).unwrap_or(&self.other).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_methods_are_known_and_others_share_a_name() {
        let methods = Methods::load(&Metrics::new());
        let cases = [
            ("/toolpulse.v1.ToolRegistryService/RegisterTool", true, false),
            ("/toolpulse.v1.GatewayStatusService/WatchGatewayStatus", true, true),
            ("/grpc.health.v1.Health/Watch", true, true),
            ("/grpc.health.v1.Health/List", true, false),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true, true),
            ("/toolpulse.v1.ToolRegistryService/Nope", false, false),
            ("/", false, false),
        ];
        for (path, known, streams) in cases {
            let method = methods.find(path);
            assert_eq!((method.known, method.streams), (known, streams), "{path}");
            assert_eq!(method.calls.method(), if known { &path[1..] } else { "_OTHER" });
        }
    }
}

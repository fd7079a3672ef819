# syntax=docker/dockerfile:1

ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm

# The tool that writes the bill of materials; a layer of its own, since it changes with no line of ours.
FROM ${RUST_IMAGE} AS cyclonedx
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo install --locked --root /opt/cyclonedx cargo-cyclonedx@0.5.9

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY --from=cyclonedx /opt/cyclonedx/bin/ /usr/local/bin/
COPY . .
ARG TARGETARCH
# The flag goes to the program alone, after everything else was compiled without it: build scripts can't have it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=toolpulse-target-${TARGETARCH} \
    cargo rustc --release --locked --bin toolpulse -- -C target-feature=+crt-static \
    && install -D -m 0755 target/release/toolpulse /out/toolpulse
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo cyclonedx --quiet --format json --spec-version 1.5 --describe binaries --no-build-deps \
    && install -m 0644 toolpulse_bin.cdx.json /out/sbom.cdx.json
# In a directory of its own, so that whatever copies it gives it its owner and mode.
RUN install -d -m 0700 /out/volumes/data

# `docker build --target sbom --output . .` writes the bill of materials.
FROM scratch AS sbom
COPY --from=build /out/sbom.cdx.json /

# Nothing but the program and what says what it is: the public TLS roots are compiled in, names are resolved without files.
FROM scratch
COPY --from=build /out/toolpulse /usr/local/bin/toolpulse
COPY --from=build /out/sbom.cdx.json /usr/share/doc/toolpulse/sbom.cdx.json
COPY LICENSE /usr/share/doc/toolpulse/LICENSE
COPY --from=build --chown=65532:65532 /out/volumes/ /
USER 65532:65532
# The volume is all that can be written: there is no /tmp.
ENV PATH=/usr/local/bin \
    TMPDIR=/data \
    TOOLPULSE_LISTEN=0.0.0.0:50051 \
    TOOLPULSE_ADMIN_LISTEN=0.0.0.0:9091 \
    TOOLPULSE_DATA_DIR=/data
VOLUME /data
EXPOSE 50051 9091
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["toolpulse", "healthcheck"]
ENTRYPOINT ["toolpulse"]
CMD ["serve"]
# Last, so that a new commit makes no new layer.
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Toolpulse" \
      org.opencontainers.image.description="A gRPC registry for the tools that AI agents call" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"

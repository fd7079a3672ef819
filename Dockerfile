# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# One static file. --target keeps build scripts and proc macros out of crt-static, which they can't be built with.
ENV RUSTFLAGS="-C target-feature=+crt-static"
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=target-${TARGETARCH} \
    case "${TARGETARCH:-amd64}" in \
        amd64) target=x86_64-unknown-linux-gnu ;; \
        arm64) target=aarch64-unknown-linux-gnu ;; \
        *) echo "no build for ${TARGETARCH}" >&2; exit 1 ;; \
    esac \
    && cargo build --release --locked --bin toolpulse --target "$target" \
    && install -D "target/$target/release/toolpulse" /out/usr/local/bin/toolpulse \
    && install -d -m 0700 -o 65532 -g 65532 /out/data \
    && install -d -m 1777 /out/tmp

# Nothing but the program: the public TLS roots are compiled in.
FROM scratch
COPY --from=build /out/ /
USER 65532:65532
ENV PATH=/usr/local/bin \
    TOOLPULSE_LISTEN=0.0.0.0:50051 \
    TOOLPULSE_ADMIN_LISTEN=0.0.0.0:9091 \
    TOOLPULSE_DATA_DIR=/data
VOLUME /data
EXPOSE 50051 9091
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s CMD ["toolpulse", "healthcheck"]
ENTRYPOINT ["toolpulse"]
CMD ["serve"]

# An image is one static binary, the licenses of what is linked into it, and the public
# certificate authorities, for a server whose certificate is from one of them; the rest is
# empty. PROGRAM is the directory of the program: the Icecream controller's by default.
# `make image` builds images, and `make test-image` tests them.
#
# Both bases are arguments, for where Docker Hub cannot be reached: BUILD_IMAGE
# may be any image that has Go, a shell and /etc/ssl/certs/ca-certificates.crt. The
# digest is that of the index of all platforms; it goes with the tag, so they change
# together.
ARG BUILD_IMAGE=docker.io/library/golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d

# Nothing more is needed to run: the binary has its libraries in it, the cluster's CA
# comes with the service account, and times are UTC. What is not there has no
# vulnerabilities and needs no updates.
ARG RUNTIME_IMAGE=scratch

# It compiles on the machine's own platform, for the one that was asked for.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG LDFLAGS
ENV GOOS=${TARGETOS} GOARCH=${TARGETARCH} LDFLAGS="${LDFLAGS}" \
    GOMODCACHE=${GOMODCACHE:-/cache/modules} GOCACHE=${GOCACHE:-/cache/build}

# Whatever Go the image has, the version that go.mod pins compiles, with the flags of
# every build.
ARG PROGRAM=.
RUN --mount=type=cache,target=/cache set -a && . hack/build.env && \
    GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod) && \
    go build -ldflags "${LDFLAGS}" -o /out/controller "./${PROGRAM}" && \
    mkdir /out/licenses && GOOS='' GOARCH='' go run ./hack/licenses /out/controller >/out/licenses/licenses.txt && \
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt

FROM ${RUNTIME_IMAGE}
COPY --from=build /out/ /
# A number, because kubelet cannot tell whether a name is root's.
USER 65532:65532
# hack/image.sh renames the binary of a program that is part of another.
ENTRYPOINT ["/controller"]

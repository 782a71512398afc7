# docker build -f streaming/containers/service.Dockerfile -t YOUR-REGISTRY/selectroute-service:TAG .
# The registry, its queues and the console over HTTP; docs/how-to/containers.md says how to run it.

# The Debian and the Python of the checks. The tag moves when these are corrected; --build-arg BASE=python@sha256:…
# names one image for good.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=console
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
# What is only needed to install, to test and to compile against packages is left out.
RUN python -m venv /opt/selectroute \
    && /opt/selectroute/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]" \
    && /opt/selectroute/bin/pip uninstall -y pip setuptools \
    && find /opt/selectroute -depth -type d \( -name tests -o -path '*/pyarrow/include' \) -exec rm -r '{}' +
# About a minute now, and not at the first match. Another kind of processor compiles once more.
RUN NUMBA_CACHE_DIR=/opt/kernel /opt/selectroute/bin/selectroute warm

FROM ${BASE}
LABEL org.opencontainers.image.title="selectroute service" \
      org.opencontainers.image.description="Registry of message selectors, and queues, over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --no-log-init --no-create-home --home-dir /data --shell /usr/sbin/nologin selectroute \
    && install -d -o 10001 -g 10001 -m 0700 /data
# Owned by root: the service cannot change the code that it runs.
COPY --from=build /opt /opt
# Other machines can reach 0.0.0.0, so the service does not start before there is a token.
ENV PATH=/opt/selectroute/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/kernel \
    PYTHONDONTWRITEBYTECODE=1 \
    SELECTROUTE_REGISTRY=sqlite:////data/registry.db \
    SELECTROUTE_HOST=0.0.0.0 \
    SELECTROUTE_PORT=8080
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"SELECTROUTE_PORT\"]}/readyz', timeout=4)"]
ENTRYPOINT ["selectroute"]
CMD ["serve"]

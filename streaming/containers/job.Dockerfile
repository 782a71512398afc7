# docker build -f streaming/containers/job.Dockerfile -t YOUR-REGISTRY/selectroute:TAG .
# The job: on one machine, and as driver and executor on Kubernetes; docs/how-to/containers.md says how to run it.

# The Debian and the Python of the checks. The tag moves when these are corrected; --build-arg BASE=python@sha256:…
# names one image for good.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=spark,service,kafka,storage,delta
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
# Spark and its Java come as wheels. What is only needed to install, to test and to compile against packages is left out.
RUN python -m venv /opt/selectroute \
    && /opt/selectroute/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]" \
    && /opt/selectroute/bin/pip uninstall -y pip setuptools \
    && find /opt/selectroute -depth -type d \( -name tests -o -path '*/pyarrow/include' \) -exec rm -r '{}' +
# About a minute now, and not in the first batch. Another kind of processor compiles once more.
RUN NUMBA_CACHE_DIR=/opt/kernel /opt/selectroute/bin/selectroute warm
COPY streaming/submit.py streaming/containers/entrypoint.py /opt/selectroute/streaming/

FROM ${BASE}
LABEL org.opencontainers.image.title="selectroute job" \
      org.opencontainers.image.description="Routes messages to every subscription that matches, with Spark" \
      org.opencontainers.image.licenses="Apache-2.0"
# 185 is the user of Spark's own images. Hadoop wants the name of a user.
RUN useradd --uid 185 --no-log-init --no-create-home --home-dir /data --shell /usr/sbin/nologin spark \
    && install -d -o 185 -g 185 -m 0700 /data
# Owned by root: the job cannot change the code that it runs.
COPY --from=build /opt /opt
# Metrics are for this container alone; SELECTROUTE_METRICS_HOST=0.0.0.0 shows them to Prometheus.
ENV PATH=/opt/selectroute/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/kernel \
    PYTHONDONTWRITEBYTECODE=1 \
    SELECTROUTE_METRICS_PORT=9101
USER 185:185
WORKDIR /data
VOLUME /data
EXPOSE 9101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"SELECTROUTE_METRICS_PORT\"]}/metrics', timeout=4)"]
ENTRYPOINT ["python", "/opt/selectroute/streaming/entrypoint.py"]
CMD ["stream", "run", "--help"]

# The image of `heartbeat-stream`: only what a worker needs, as a user without rights, good for a
# read-only root file system (what is written goes to /var/lib/heartbeat-stream and /tmp).
#
#   docker build -t heartbeat-stream:0.1.0 .
#
# A release is built on a digest, so that it is the same base tomorrow:
#
#   docker build --build-arg PYTHON_DIGEST=@sha256:... -t heartbeat-stream:0.1.0 .

# The version of Python that the tests run on.
ARG PYTHON_TAG=3.11.14-slim-bookworm
ARG PYTHON_DIGEST=

FROM python:${PYTHON_TAG}${PYTHON_DIGEST} AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_ONLY_BINARY=:all:
WORKDIR /src

# Dependencies first: they change less often than the code. Every file is one that the lock names.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/heartbeat-stream \
 && python -m pip --python /opt/heartbeat-stream/bin/python install --require-hashes -r requirements.lock \
 && python -m pip install --require-hashes -r requirements-build.lock

COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY heartbeat_stream ./heartbeat_stream
RUN python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && python -m pip --python /opt/heartbeat-stream/bin/python install --no-deps --no-index /wheels/*.whl

FROM python:${PYTHON_TAG}${PYTHON_DIGEST}
LABEL org.opencontainers.image.title="heartbeat-stream" \
      org.opencontainers.image.description="Newest heartbeat of every room from Kafka to PostgreSQL" \
      org.opencontainers.image.licenses="Apache-2.0"

# A number and not a name: Kubernetes' runAsNonRoot cannot look a name up. A volume that is mounted
# here for the first time takes over the owner of the directory.
RUN groupadd --system --gid 10001 heartbeat \
 && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin heartbeat \
 && install -d -o 10001 -g 10001 -m 0750 /var/lib/heartbeat-stream
COPY --from=build /opt/heartbeat-stream /opt/heartbeat-stream

ENV PATH=/opt/heartbeat-stream/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    HEARTBEAT_DATA_DIR=/var/lib/heartbeat-stream \
    HEARTBEAT_WEB_HOST=0.0.0.0 \
    HEARTBEAT_WEB_PORT=6066 \
    HEARTBEAT_LOG_FORMAT=json
# Not the data directory: a .env file that lies in the working directory would be read.
WORKDIR /opt/heartbeat-stream
USER 10001:10001
VOLUME ["/var/lib/heartbeat-stream"]
EXPOSE 6066

# Python is process 1, with no shell between that would keep SIGTERM to itself.
STOPSIGNAL SIGTERM
ENTRYPOINT ["heartbeat-stream"]
CMD ["worker"]

# Of a worker; for other commands it is to be switched off. There is no curl in the image, and urllib
# would ask a proxy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=90s --retries=6 \
  CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['HEARTBEAT_WEB_PORT']), timeout=4); c.request('GET', '/health/live'); sys.exit(c.getresponse().status != 200)"]

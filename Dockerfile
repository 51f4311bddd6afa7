# esg-scheduler: the extender, the webhook and the node agent, in one image.
#
# The base is an argument, so that it can be built where no public registry is reached.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/bootstrap.txt requirements/run.txt requirements/
RUN python3 -m venv /opt/esg \
 && /opt/esg/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY scheduler scheduler
RUN /opt/esg/bin/python -m pip install --no-cache-dir --no-deps . \
 && /opt/esg/bin/python -m pip uninstall --yes pip

# The kernels are compiled here once: a start then loads them from the cache.
ENV NUMBA_CACHE_DIR=/var/cache/esg-numba NUMBA_CPU_NAME=generic
RUN /opt/esg/bin/esg warm-up

FROM ${BASE}
LABEL org.opencontainers.image.title="esg-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/esg /opt/esg
# Numba uses a cache only where it may write, so it belongs to the user that runs.
COPY --from=build --chown=65532:65532 /var/cache/esg-numba /var/cache/esg-numba
ENV PATH=/opt/esg/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/cache/esg-numba NUMBA_CPU_NAME=generic
USER 65532:65532
EXPOSE 8888 8443 8889 8890
ENTRYPOINT ["esg"]
CMD ["serve"]

# esg-scheduler: the extender, the webhook, the gateway and the node agent, in one image.
#
# The bases are arguments, so that it can be built where no public registry is reached.
ARG BASE=docker.io/library/python:3.13-slim-bookworm
# The same with a C compiler.
ARG COMPILER_BASE=docker.io/library/python:3.13-bookworm

# What the project needs is a layer of its own: a new version of the project leaves it as it is.
FROM ${COMPILER_BASE} AS dependencies
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/pip \
 && /opt/pip/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/esg \
 && /opt/pip/bin/pip --python /opt/esg/bin/python install --no-cache-dir --require-hashes -r requirements/run.txt \
 && find /opt/esg -type d -name tests -prune -exec rm -r {} +

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY scheduler scheduler
# The gateway's data path and the kernels are compiled. What they import and Numba are in /opt/esg.
ENV HATCH_BUILD_HOOKS_ENABLE=1
RUN echo /opt/esg/lib/python3.*/site-packages > /opt/pip/esg.pth \
 && mv /opt/pip/esg.pth /opt/pip/lib/python3.*/site-packages/ \
 && /opt/pip/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /opt/wheel . \
 && /opt/pip/bin/pip --python /opt/esg/bin/python install --no-cache-dir --no-index --no-deps --target /opt/esg/project /opt/wheel/*.whl

# Only the simulators need Numba and LLVM at run time.
FROM dependencies AS runtime
RUN /opt/pip/bin/pip --python /opt/esg/bin/python uninstall --yes numba llvmlite

FROM ${BASE}
LABEL org.opencontainers.image.title="esg-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=runtime /opt/esg /opt/esg
COPY --from=build /opt/esg/project /opt/esg/project
ENV PATH=/opt/esg/project/bin:/opt/esg/bin:$PATH PYTHONPATH=/opt/esg/project \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8081 8082 8888 8443 8889 8890
ENTRYPOINT ["esg"]
CMD ["serve"]

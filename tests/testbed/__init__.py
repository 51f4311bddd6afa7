"""A real control plane on the loopback, for the end-to-end tests and for `make cluster`.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK are built from Go modules
pinned beside this file; nothing here needs a container engine or an image. Every part listens on
127.0.0.1, writes its log under the work folder that it is given, and is stopped by its own process
id. Nothing of the package `scheduler` is imported here: the test bed meets the product as a user
does, by its command, its HTTP port and what it writes to the API server.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
"""The root of the working tree: where `deploy/` and `tests/` lie."""

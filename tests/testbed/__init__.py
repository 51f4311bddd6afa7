"""A real control plane on the loopback, for the end-to-end tests and for `make cluster`.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK are built from the Go modules
in `programs` and `kwok`, which pin their versions; nothing here needs a container engine or an
image. Every program listens on 127.0.0.1, writes its log below the control plane's work folder, and
is stopped by its own process id. Nothing of the package `scheduler` is imported here: like a user,
the test bed knows the product by its command, its HTTP port and its writes to the API server.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
"""Root of the working tree, with `deploy/` and `tests/`."""

"""The control plane of the test bed, for the tests marked e2e."""

from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]

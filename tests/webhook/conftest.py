"""Fixtures of the test bed's control plane, for tests marked e2e."""

from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]

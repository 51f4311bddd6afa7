"""The fixtures that the tests of the test bed use."""

from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]

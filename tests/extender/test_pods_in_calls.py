"""Pods in the calls of kube-scheduler, next to the cache's reading of them."""

import pytest

from tests.extender.factories import nodes_and_documents, pod
from tests.extender.harness import embedded


@pytest.mark.parametrize("version", ["6", "8"])
def test_a_pod_of_another_version_than_the_caches_is_read_as_it_is_sent(version):
    """The cache's reading of a pod counts only while both have the same version."""
    with embedded(**nodes_and_documents()) as extender:
        known = pod("half")
        known["metadata"]["resourceVersion"] = "7"
        extender.create(known)
        assert any(score["Score"] for score in extender.prioritize(known, "n1", "n2"))
        sent = pod("unheard-of", name=known["metadata"]["name"], uid=known["metadata"]["uid"])
        sent["metadata"]["resourceVersion"] = version
        assert not any(score["Score"] for score in extender.prioritize(sent, "n1", "n2"))

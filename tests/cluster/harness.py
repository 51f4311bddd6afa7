"""The documents' storage of a control plane."""

from http import HTTPStatus

from scheduler.cluster.resource import FUNCTION_PROFILES, WORKFLOWS
from tests.testbed.api import ApiError, wait_until
from tests.testbed.control_plane import ControlPlane

DOCUMENTS = (WORKFLOWS, FUNCTION_PROFILES)


def wait_for_storage(plane: ControlPlane) -> None:
    """Wait until documents of installed CRDs can be listed: 429 for about a second."""

    def answers() -> bool:
        try:
            return all(plane.api.items(kind.path) is not None for kind in DOCUMENTS)
        except ApiError as error:
            return error.status == HTTPStatus.NOT_FOUND

    wait_until(answers, what="the documents' storage")

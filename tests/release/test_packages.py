"""Contents of the wheel and of the image: research and the desk are no part of the image."""

import tomllib

from scheduler.cli.commands import DESK
from tests.testbed import REPOSITORY


def test_the_wheel_has_each_package_and_an_extra_for_those_of_the_desk():
    """`pip install 'esg-scheduler[studies]'` brings what the commands of a study import."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == {"scheduler", *DESK}
    extras = set(project["project"]["optional-dependencies"])
    assert extras == {"dask", "otel", *DESK}  # the image has that of spans


def test_the_image_is_built_from_the_runtime_alone():
    """The build's context has no other package of this repository."""
    text = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8")
    allowed = {line[1:] for line in text.splitlines() if line.startswith("!")}
    assert "scheduler" in allowed
    assert not allowed & {*DESK, "bench", "tests"}

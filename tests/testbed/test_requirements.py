"""Requirements of the suites on kind: a missing one is named in one line."""

import pytest

from tests.testbed import machine_requirements


@pytest.mark.parametrize("purpose", ["chart", "gateway", "torchserve", "agent", "image", "docker"])
def test_missing_programs_are_named_by_their_packages(
    monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """Without any program, every purpose lacks a package."""
    monkeypatch.setenv("PATH", "")
    assert machine_requirements.missing_packages(purpose)


def test_a_machine_without_go_gives_a_reason_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without the suites on kind prints it."""
    monkeypatch.setenv("PATH", "")
    reason = machine_requirements.missing_for_kind()
    assert reason
    assert "\n" not in reason


def test_a_machine_without_a_docker_daemon_needs_the_packages_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A running one replaces them, and an image to pull replaces those that build one."""
    monkeypatch.setattr(machine_requirements, "missing_packages", lambda purpose: [purpose])
    monkeypatch.setattr(machine_requirements.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine_requirements.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv(machine_requirements.IMAGE_VARIABLE, raising=False)
    monkeypatch.setattr(machine_requirements, "docker_answers", lambda: False)
    assert machine_requirements.missing_for_kind().endswith("packages: agent image docker")
    monkeypatch.setattr(machine_requirements, "docker_answers", lambda: True)
    monkeypatch.setenv(machine_requirements.IMAGE_VARIABLE, "kindest/node:v1.36.4")
    assert machine_requirements.missing_for_kind().endswith("packages: agent")

"""Names in the documents exist: settings, commands, make targets and metrics."""

import re
from pathlib import Path

from typer.main import get_command

from scheduler.agent.settings import AgentSettings
from scheduler.cli.commands import app
from scheduler.gateway.settings import GatewaySettings
from scheduler.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    path
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    if path.name != "CHANGELOG.md"  # it also contains former names
]
CONTAINER_VARIABLES = {"ESG_BATCH", "ESG_GPU"}
TEST_VARIABLES = {"ESG_KIND_IMAGE", "ESG_TEST_KUBERNETES", "ESG_DATA", "ESG_TEST_KUBECONFIG"}


def unknown(pattern: str, known: set[str]) -> dict[str, set[str]]:
    """Return the unknown names in code spans and code blocks, by document."""
    unknown_names = {}
    for document in DOCUMENTS:
        code = re.findall(r"```.*?```|`[^`]+`", document.read_text(encoding="utf-8"), re.DOTALL)
        names = {name for block in code for name in re.findall(pattern, block)}
        if names - known:
            unknown_names[document.name] = names - known
    return unknown_names


def test_settings_exist() -> None:
    """Every ESG_ variable is a setting, or a variable of function pods or of the tests."""
    settings = {
        f"{model.model_config['env_prefix']}{field}".upper()
        for model in (Settings, AgentSettings, GatewaySettings)
        for field in model.model_fields
    }
    known = settings | CONTAINER_VARIABLES | TEST_VARIABLES
    assert unknown(r"\bESG_[A-Z0-9_]*[A-Z0-9]\b", known) == {}


def test_commands_exist() -> None:
    """Every ``esg`` command is one of the command line."""
    assert unknown(r"(?:^`|[\n/$] ?)esg ([a-z][a-z-]+)", set(get_command(app).commands)) == {}


def test_make_targets_exist() -> None:
    """Every ``make`` target is one of the Makefile."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    assert unknown(r"(?:^`|\n)make ([a-z][a-z0-9-]*)", targets) == {}


def test_metrics_exist() -> None:
    """Every metric is on the reference page, which the code generates."""
    reference = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    metrics = set(re.findall(r"\besg_[a-z0-9_]+", reference)) | {"esg_scheduler"}
    assert unknown(r"(?<![/.])\besg_[a-z0-9_]+", metrics) == {}

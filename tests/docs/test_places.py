"""Files and modules that prose names exist: in documents, docstrings and comments.

ADRs are frozen once accepted: they name the files of their time.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("bench", "scheduler", "studies", "tests", "tools", "workbench")
FOLDERS = (*PACKAGES, ".ci", "deploy", "docs", "helm", "requirements")
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*\w")
MODULE = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+")
PYTHON_PROSE = re.compile(r'"""(?s:.*?)"""|#.*')
PLACEHOLDER = re.compile(r"[A-Z]{4,}")  # as in ranges/NAME.json


def sources() -> Iterator[Path]:
    """Return the files with prose."""
    yield from REPOSITORY.glob("*.md")
    yield from (REPOSITORY / "Makefile", REPOSITORY / "Dockerfile")
    for folder in FOLDERS:
        for path in (REPOSITORY / folder).rglob("*"):
            if "adr" in path.parts:
                continue
            if path.suffix in {".md", ".py", ".tpl", ".yaml"} or path.parent.name == ".ci":
                yield path


def prose(path: Path) -> str:
    """Return the long strings and comments of a Python file, or the whole of another one."""
    text = path.read_text(encoding="utf-8")
    return "\n".join(PYTHON_PROSE.findall(text)) if path.suffix == ".py" else text


def is_defined(name: str) -> bool:
    """Tell if a dotted name is a package, a module, or a name in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        folder = REPOSITORY.joinpath(*parts[:count])
        module = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else folder
        if count == len(parts) and module.exists():
            return True
        if folder.is_dir():
            module = folder / "__init__.py"
        if module.is_file():
            text = module.read_text(encoding="utf-8")
            return re.search(rf"\b{parts[count]}\b", text) is not None
    return False


def test_files_exist() -> None:
    """A path below a folder of the repository exists, unless it has a placeholder."""
    unknown = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in sources()
        for name in FILE.findall(prose(path))
        if not PLACEHOLDER.search(name) and not (REPOSITORY / name).exists()
    }
    assert not unknown


def test_modules_exist() -> None:
    """A dotted name is a package, a module, a name in one, or a value of the chart."""
    values = yaml.safe_load((REPOSITORY / "helm/esg-scheduler/values.yaml").read_text())
    of_chart = {f"scheduler.{key}" for key in values["scheduler"]}
    unknown = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in sources()
        if path.suffix in {".md", ".py"}
        for name in MODULE.findall(prose(path))
        if ".".join(name.split(".")[:2]) not in of_chart
        and not (REPOSITORY / name).exists()
        and not is_defined(name)
    }
    assert not unknown


def test_a_name_that_does_not_exist_is_noticed() -> None:
    """Only the last part may be a name inside a module."""
    assert is_defined("scheduler.search.planner")
    assert is_defined("scheduler.search.planner.Planner.plan")
    assert not is_defined("scheduler.search.plannings")
    assert not is_defined("scheduler.seeking.planner")

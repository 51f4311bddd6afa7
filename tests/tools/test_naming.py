"""The naming checker: the findings of each rule, and the text that must pass."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import naming
from tools.naming import main

Check = Callable[[str | dict[str, str]], list[str]]


def write(folder: Path, sources: dict[str, str]) -> None:
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Check sources as if git tracked them; return `path:line: rule: message` per finding."""
    monkeypatch.chdir(tmp_path)

    def findings(sources: str | dict[str, str]) -> list[str]:
        if isinstance(sources, str):
            sources = {"scheduler/module.py": sources}
        write(tmp_path, sources)
        monkeypatch.setattr(naming, "python_files", lambda _: [Path(name) for name in sources])
        status = main([])
        lines = [line for line in capsys.readouterr().out.splitlines() if "; " in line]
        assert status == (1 if lines else 0)
        return [line.partition("; ")[0] for line in lines]

    return findings


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a repository whose index has two Python files and one of text."""
    monkeypatch.chdir(tmp_path)
    named = ("scheduler/a.py", "tests/a.py", "tests/b.txt")
    write(tmp_path, dict.fromkeys(named, "kept = 1\n"))
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    return tmp_path


@pytest.mark.parametrize("word", ["What", "Whether", "How", "Who", "Whoever", "Where", "Of", "As"])
def test_a_docstring_must_not_open_with_an_indirect_question(check: Check, word: str) -> None:
    expected = f"scheduler/module.py:1: docstring-opening: a docstring opens with {word!r}"
    assert expected in check(f'"""{word} it is."""\n')


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('class Pod:\n    """What it is."""\n', 2),
        ('def pod():\n    """What it is."""\n', 2),
        ('async def pod():\n    """What it is."""\n', 2),
        ('class Pod:\n    name: str\n    """What it is."""\n', 3),
        ('NAME = "x"\n"""\nWhat it is.\n"""\n', 2),
        ('def pod():\n    """What\'s here."""\n', 2),
        ('def outer():\n    def inner():\n        """what it is."""\n', 3),
    ],
)
def test_docstrings_of_all_kinds_are_checked(check: Check, source: str, line: int) -> None:
    (finding,) = check(source)
    assert finding.startswith(f"scheduler/module.py:{line}: docstring-opening: ")


@pytest.mark.parametrize(
    "source",
    [
        '"""Mutate function pods. What follows is free."""\n',
        '"""Whatever the name, the first whole word counts."""\n',
        '"""Assigned GPU share."""\n',
        'TEXT = "What is this?"\n',
        'def pod():\n    print()\n    "What is no docstring."\n',
    ],
)
def test_other_text_passes(check: Check, source: str) -> None:
    assert check(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "pod, (told, node) = value",
        "for told in pods: pass",
        "with pod as told: pass",
        "print(told := 1)",
        "print([pod for told in pods])",
        "def told(): pass",
        "async def told(): pass",
        "class Told: pass",
        "def pod(told): pass",
        "def pod(*, told=1): pass",
        "def pod(*told): pass",
        "def pod(**told): pass",
        "print(lambda told: 1)",
        "class Pod:\n    told: int",
        "def pod(self):\n    self.told = 1",
        "def pod(self):\n    self._told = 1",
        "import pod as told",
        "from pods import pod as told",
        "try: pass\nexcept Exception as told: pass",
        "match pod:\n    case {'x': told}: pass",
        "match pod:\n    case [*told]: pass",
        "match pod:\n    case {**told}: pass",
    ],
)
def test_a_banned_name_is_found_wherever_it_is_bound(check: Check, source: str) -> None:
    (finding,) = check(source)
    assert finding.startswith("scheduler/module.py:")
    assert ": banned-name: " in finding
    assert "told" in finding.lower()


@pytest.mark.parametrize("path", ["scheduler/kept.py", "scheduler/kept/__init__.py"])
def test_a_module_or_package_must_not_have_a_banned_name(check: Check, path: str) -> None:
    assert check({path: ""}) == [f"{path}:1: banned-name: 'kept' names no thing"]


@pytest.mark.parametrize(
    "source",
    [
        "print(told)",
        "print(pod.told)",
        "pod.told = 1",
        "import told",
        "told_pods = 1",
        "mostly = 1",
        "pod(told=1)",
    ],
)
def test_uses_and_longer_names_pass(check: Check, source: str) -> None:
    assert check(source) == []


@pytest.mark.parametrize("first", ["scheduler/one.py", "scheduler/room/one.py", "demo/one.py"])
def test_a_class_name_is_unique_in_the_runtime_packages(check: Check, first: str) -> None:
    source = "class Grant: pass\n"
    files = sorted([first, "scheduler/two.py"])
    assert check(dict.fromkeys(files, source)) == [
        f"{files[1]}:1: class-name: class 'Grant' is also defined at {files[0]}:1"
    ]


def test_a_third_definition_is_a_finding_too(check: Check) -> None:
    sources = dict.fromkeys(["scheduler/a.py", "scheduler/b.py"], "class Grant: pass\n")
    findings = check(sources | {"scheduler/c.py": "\nclass Grant: pass\n"})
    assert [finding.partition(": ")[0] for finding in findings] == [
        "scheduler/b.py:1",
        "scheduler/c.py:2",
    ]


def test_tests_and_development_folders_have_their_own_class_names(check: Check) -> None:
    files = ["scheduler/a.py", "bench/a.py", "helm/a.py", "tests/a.py", "tests/b.py"]
    assert check(dict.fromkeys(files, "class Grant: pass\n")) == []


@pytest.mark.parametrize("line", ["import pods as Grant", "from pods import Pod as Grant"])
def test_an_alias_must_not_reuse_a_class_name(check: Check, line: str) -> None:
    sources = {"scheduler/a.py": line, "scheduler/b.py": "class Grant: pass\n"}
    assert check(sources) == [
        "scheduler/a.py:1: class-name: alias 'Grant' is a class at scheduler/b.py:1"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "from scheduler.b import Grant",
        "from scheduler.b import Grant as Grant",
        "from scheduler.b import Grant as PodGrant",
    ],
)
def test_imports_under_free_names_pass(check: Check, line: str) -> None:
    assert check({"scheduler/a.py": line, "scheduler/b.py": "class Grant: pass\n"}) == []


@pytest.mark.parametrize(
    "name",
    ["now", "deadline", "arrival", "assumed_at", "moment", "began", "latency", "slack", "budget",
     "cost", "price", "rate", "cost_value", "cost_per_hour", "per_dollar", "_cost", "COST",
     "s_now"],
)  # fmt: skip
def test_a_float_without_a_unit_is_found(check: Check, name: str) -> None:
    assert check(f"{name}: float\n") == [
        f"scheduler/module.py:1: float-unit: float {name!r} has no unit"
    ]


@pytest.mark.parametrize(
    "name",
    ["now_s", "deadline_ms", "memory_mib", "cost_dollars", "dollars_per_vcpu_hour", "arrival_rps",
     "mib_per_s", "events_per_s", "seconds", "headroom_ratio", "slo_factor", "alpha",
     "quantile", "value", "x", "_", "_pause_s", "TIMEOUT_S", "cold_starts", "gpu_percent"],
)  # fmt: skip
def test_a_float_with_a_unit_or_a_dimensionless_kind_passes(check: Check, name: str) -> None:
    assert check(f"{name}: float\n") == []


@pytest.mark.parametrize(
    "source",
    [
        "def pod(cost: float): pass",
        "def pod(*, cost: float = 1.0): pass",
        "def cost() -> float: pass",
        "async def cost() -> float: pass",
        "class Pod:\n    cost: float",
        "def pod(self):\n    self.cost: float = 1.0",
        "cost: float | None = None",
        "cost: None | float = None",
        "cost: int | float",
        "cost: 'float'",
        "cost: Optional[float]",
        "cost: typing.Optional[float]",
        "cost: Union[float, None]",
        "cost: Annotated[float, Field(gt=0)]",
        "cost: Annotated[float | None, Field(gt=0)]",
        "cost: Final[float] = 1.0",
        "cost: ClassVar[float] = 1.0",
        "cost: InitVar[float]",
    ],
)
def test_a_float_is_found_in_all_forms(check: Check, source: str) -> None:
    (finding,) = check(source)
    assert finding.endswith(": float-unit: float 'cost' has no unit")


@pytest.mark.parametrize(
    "source",
    [
        "cost: int",
        "cost = 1.0",
        "def pod(cost): pass",
        "cost: list[float]",
        "cost: Callable[[float], float]",
        "cost: Annotated[int, float]",
        "class Pod:\n    def __float__(self) -> float: pass",
    ],
)
def test_what_is_no_single_float_passes(check: Check, source: str) -> None:
    assert check(source) == []


@pytest.mark.parametrize(
    "phrase",
    ["anew", "Anew", "for ever", "come what may", "whoever", "whosoever", "at the most",
     "at the least", "beside the", "none of ours", "to be had", "of late"],
)  # fmt: skip
def test_an_archaism_is_found_in_comments_and_docstrings(check: Check, phrase: str) -> None:
    source = f'''"""Pods.

Again {phrase}.
"""

node = 1  # so {phrase}.
'''
    assert check(source) == [f"scheduler/module.py:{line}: archaism: {phrase!r}" for line in (3, 6)]


@pytest.mark.parametrize("source", ['"""Run for\never."""\n', "# Run for\n# ever.\n"])
def test_an_archaism_is_found_across_lines(check: Check, source: str) -> None:
    assert check(source) == ["scheduler/module.py:1: archaism: 'for ever'"]


@pytest.mark.parametrize(
    "source",
    [
        "# the node with at the least loaded GPU\n",
        "# the share of late pods\n",
        "# a renewal, for everyone\n",
        "text = 'done anew'\n",
        "text = 'anew'  # again\n",
    ],
)
def test_plain_words_and_other_strings_pass(check: Check, source: str) -> None:
    assert check(source) == []


def test_a_finding_says_what_to_do(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    check("now: float\nkept = 1\n")
    assert main([]) == 1
    assert capsys.readouterr().out == (
        "scheduler/module.py:1: float-unit: float 'now' has no unit; "
        "end it with its unit (_ms, _dollars) or kind (_ratio)\n"
        "scheduler/module.py:2: banned-name: 'kept' names no thing; use the field's noun\n"
        "banned-name: 1\nfloat-unit: 1\n"
    )


def test_counts_are_per_rule_and_top_folder(
    check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    check({"scheduler/a.py": "kept = 1\nmore = 1\n", "tests/a.py": "kept = 1\ncost: float\n"})
    assert main(["--count"]) == 1
    assert capsys.readouterr().out == (
        "banned-name scheduler 2\nbanned-name tests 1\nfloat-unit tests 1\n"
        "banned-name: 3\nfloat-unit: 1\n"
    )


@pytest.mark.usefixtures("repository")
def test_only_the_paths_of_the_command_line_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tests"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tests/a.py:1: ")
    assert lines[1:] == ["banned-name: 1"]


def test_untracked_files_are_ignored(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "scratch.py").write_text("kept = 1\n", encoding="utf-8")
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "banned-name: 2"

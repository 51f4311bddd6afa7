"""The check of names: what it reports, and what passes."""

import subprocess
from pathlib import Path

import pytest

from tools.naming import findings, tracked_paths


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check sources by their paths."""
    monkeypatch.chdir(tmp_path)

    def reported(sources):
        for path, text in sources.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        return list(findings(map(Path, sources)))

    return reported


def test_a_class_name_occurs_once_in_all_packages(check):
    """The finding has every place, also those of this tool and of benchmarks."""
    sources = dict.fromkeys(["scheduler/a.py", "tools/b.py", "bench/c.py"], "\nclass Grant: pass\n")
    (finding,) = check(sources | {"tests/d.py": "class Grant: pass\n"})
    places = "scheduler/a.py:2 and tools/b.py:2 and bench/c.py:2"
    assert finding == f"class 'Grant' is defined at {places}; rename all but one"


@pytest.mark.parametrize(
    "source",
    [
        "told = 1", "pod, (told, node) = value", "for told in pods: pass", "print(told := 1)",
        "def told(): pass", "async def told(): pass", "class Told: pass", "import pod as told",
        "def pod(*told): pass", "class Pod:\n    told: int", "def pod(self):\n    self._told = 1",
    ],
)  # fmt: skip
def test_a_banned_name_is_found_where_it_is_bound(check, source):
    (finding,) = check({"tests/a.py": source})
    assert "told' is not the name of a thing; use the field's noun" in finding.replace(
        "Told", "told"
    )


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""What it is."""', 1),
        ('\nclass Pod:\n    """Of a node."""', 2),
        ('def a():\n  "how."', 1),
    ],
)
def test_a_docstring_opens_with_a_verb_or_a_noun(check, source, line):
    (finding,) = check({"tests/a.py": source})
    assert finding.startswith(f"tests/a.py:{line}: a docstring opens with ")


def test_uses_longer_names_and_other_texts_pass(check):
    source = '"""Whatever. What follows is free."""\ntold_pods = told.told\nTEXT = "What is it?"\n'
    assert check({"scheduler/a.py": source}) == []


def test_a_deletion_that_is_not_staged_is_left_out(tmp_path, monkeypatch):
    """The others are checked; a file that git does not track is not."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py", "c.txt"):
        Path(name).touch()
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    Path("a.py").unlink()
    Path("d.py").touch()
    assert list(tracked_paths()) == [Path("b.py")]

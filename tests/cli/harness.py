"""Calls of ``esg simulate`` in this process, and documents for it."""

import json

from scheduler.model.documents import to_manifest
from tests.command_line import esg
from tests.testbed import REPOSITORY
from workbench.commands.simulate.scenario import read_scenario
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow

QUICK = ("--requests", "150", "--jobs", "1")
GUIDE = REPOSITORY / "docs" / "simulator.md"


def simulate(*arguments, quick=True):
    return esg("simulate", *(QUICK if quick else ()), *arguments)


def answer(*arguments, quick=True):
    """Return the JSON output."""
    done = simulate(*arguments, "--json", quick=quick)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def one(*arguments):
    """The figures of a single run."""
    (run,) = answer("--policy", "minimum", *arguments)["runs"]
    return run


def refusal(*arguments, status=1):
    """Return the error output of a refused command."""
    done = simulate(*arguments)
    assert done.exit_code == status, done.output
    assert done.stdout == ""
    return done.stderr


def folder_of(tmp_path, *names, **changed):
    """Documents of sample workflows, and of the functions of those; ``changed`` is of specs."""
    functions = {function for name in names for function in WORKFLOWS[name]}
    generated = [*map(generated_workflow, names)]
    generated += [
        generated_profile(function) for function in FUNCTIONS if function.name in functions
    ]
    documents = [{"kind": document.kind, **to_manifest(document)} for document in generated]
    for document in documents:
        document["spec"].update(changed.get(document["metadata"]["name"].replace("-", "_"), {}))
    text = "\n---\n".join(map(json.dumps, documents))  # YAML that is written fast
    (tmp_path / "documents.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def scenario_of(*assignments, file=None, **options):
    """The experiment that the command reads."""
    return read_scenario(file, options, assignments)[0]

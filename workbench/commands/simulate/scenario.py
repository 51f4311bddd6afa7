"""Scenario of ``esg simulate``, from environment, file, options and ``--set``, in this order."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scheduler.cli.document_files import read_nodes, read_settings
from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.documents import Document, FunctionProfile
from scheduler.model.message_text import listed, quoted, reason_of
from scheduler.model.node import Node, NodeError, checked_node, node_from_json
from scheduler.model.yaml_parser import YamlError, parse_yaml
from workbench.commands.simulate.jobs import documents_of
from workbench.simulation.runs.experiment import Experiment
from workbench.simulation.scenario import ScenarioError

_NODE_KEYS = ("gpus_per_node", "gpu_models", "cpus", "memory_mib", "unlike_nodes")
_KIND_KEYS = ("gpus", "gpu_model", "cpus", "memory_mib")
_MILLI_PER_CPU = 1000
_GATEWAY = "the gateway's /v1/cluster"
_PLURALS = {"policy": "policies", "setting": "settings", "seed": "seeds"}


class ScenarioKeys:
    """Values by key, and the place where each one was set, for error messages.

    They start with the live service's settings of planning and placement.

    Args:
        cluster: nodes and settings of a gateway, as its ``/v1/cluster`` has them. Default: the
            settings are those of the environment.
    """

    def __init__(self, cluster: Mapping[str, Any] | None = None) -> None:
        if cluster is None:
            self.values = read_settings().simulated
            self._sources = dict.fromkeys(self.values, "environment ESG_…")
            return
        # Run times contain the network, and between two stages data pass the gateway.
        self.values = {"bandwidth_mib_s": inf, **cluster}
        if kinds := self.values.pop("node_kinds", None):
            self.values |= _keys_of_kinds([kind for kind in kinds for _ in range(kind["count"])])
        self._sources = dict.fromkeys(self.values, _GATEWAY)

    def read(self, file: Path) -> None:
        """Set the keys of a scenario file."""
        try:
            documents = [text for text in parse_yaml(file.read_text("utf-8")) if text is not None]
        except (OSError, UnicodeDecodeError, YamlError) as error:
            raise _error(file, "the file", reason_of(error)) from None
        if len(documents) > 1 or not all(isinstance(keys, Mapping) for keys in documents):
            raise _error(file, "the file", "must be one mapping of keys")
        for keys in documents:
            for key, value in keys.items():
                self.put(str(key), value, str(file))

    def set(self, assignment: str) -> None:
        """Set a key from ``key=value``; a dot leads into a mapping, and the value is YAML."""
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise _error("--set", quoted(assignment), "must be key=value")
        try:
            values = parse_yaml(text) or [None]
        except YamlError as error:
            raise _error("--set", key, f"is not YAML: {error}") from None
        first, *path = key.split(".")
        value = values[0]
        for name in reversed(path):
            value = {name: value}
        self.put(first, value, "--set")

    def put(self, key: str, value: Any, source: str) -> None:
        """Set a key; a mapping is merged into the one that is there."""
        if key == "nodes" and self._sources.get("unlike_nodes") == _GATEWAY:
            self.values.pop("unlike_nodes", None)  # the number is that of all nodes
        self.values[key] = _merged(self.values.get(key), value)
        self._sources[key] = source

    def experiment(self, documents: Iterable[Document]) -> Experiment:
        """Validate all keys; a cluster without GPU models has those that are profiled.

        Raises:
            DocumentError: a key is unknown, or its value is wrong.
            ScenarioError: the Node documents cannot be simulated.
        """
        nodes = self.values.get("nodes")
        if isinstance(nodes, str) and not nodes.isdecimal():
            for key in _NODE_KEYS:
                if self._sources.get(key, _GATEWAY) != _GATEWAY:
                    raise _error(self._sources[key], key, f"{nodes} defines it; remove the key")
            if not Path(nodes).exists():
                message = "should be a number of nodes, or a file of Node documents"
                raise _error(self._sources["nodes"], "nodes", f"{message} (given: {quoted(nodes)})")
            self.values |= cluster_of(Path(nodes))
        self.values.setdefault("gpu_models", tuple(sorted(profiled_models(documents))))
        try:
            return Experiment.model_validate(self.values)
        except ValidationError as error:
            raise DocumentError(map(self._problem, error.errors(include_url=False))) from None

    def _problem(self, detail: ErrorDetails) -> Problem:
        place = detail["loc"]
        key = ".".join(map(str, place)) or "the scenario"
        source = self._sources.get(str(place[0]), "scenario") if place else "scenario"
        if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            message = f"unknown key; {_suggestion(place)}"
        else:
            reason = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
            message = f"{reason} (given: {quoted(detail['input'])})"
        return Problem(source, key, "", message)


def read_scenario(
    file: Path | None,
    options: Mapping[str, Any],
    assignments: Iterable[str],
    trace: Path | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> tuple[Experiment, list[Document]]:
    """Read the experiment and its documents; a later argument takes precedence.

    Args:
        file: scenario file; None: there is none.
        options: values of keys by option; None: the option is absent.
        assignments: assignments ``key=value`` of ``--set``.
        trace: CSV of requests, a workload.
        cluster: nodes and settings of a gateway, as `ScenarioKeys` takes them.

    Raises:
        DocumentError: a key, a value or a document is wrong.
        ScenarioError: the Node documents cannot be simulated.
    """
    keys = ScenarioKeys(cluster)
    if file is not None:
        keys.read(file)
    for option, value in options.items():
        if value is not None:
            keys.put(_PLURALS.get(option, option), value, f"--{option}")
    for assignment in assignments:
        keys.set(assignment)
    if trace is not None:
        workload = keys.values.get("workload") or {}
        if workload.get("name", "requests") != "requests":
            raise _error("--trace", "workload", "not with another workload: a trace is one")
        keys.put("workload", {"name": "requests", "file": str(trace)}, "--trace")
    profiles = keys.values.get("profiles")
    documents = documents_of(None if profiles is None else Path(str(profiles)))
    return keys.experiment(documents), documents


def _merged(base: Any, value: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(value, Mapping)):
        return value
    return {**base, **{name: _merged(base.get(name), value[name]) for name in value}}


def _error(source: object, place: str, message: str) -> DocumentError:
    return DocumentError([Problem(str(source), place, "", message)])


def _suggestion(place: tuple[int | str, ...]) -> str:
    """Name the keys that are spelled like an unknown one."""
    kind: Any = Experiment
    for part in place[:-1]:
        kind = get_type_hints(kind)[str(part)]
    names = list(getattr(kind, "model_fields", None) or get_type_hints(kind))
    close = get_close_matches(str(place[-1]), names)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"


# -- the cluster


def profiled_models(documents: Iterable[Document]) -> set[str]:
    """Return the GPU models on which every function is profiled; without one, those of any."""
    models = [
        {gpu.model for gpu in document.spec.gpus}
        for document in documents
        if isinstance(document, FunctionProfile)
    ]
    return set.intersection(*models) or set.union(*models) if models else set()


def cluster_of(file: Path) -> dict[str, Any]:
    """Return the keys of a scenario that the Node documents of a file define.

    Raises:
        ScenarioError: a node has unlike GPUs, or none has any.
    """
    try:
        raws = [checked_node(raw, i) for i, raw in enumerate(read_nodes(file), start=1)]
        nodes = [node_from_json(raw) for raw in raws]
    except NodeError as error:
        raise ScenarioError(f"{file}: {error}") from None
    kinds = {node.name: kind for node in nodes if (kind := _kind(file, node)) is not None}
    if not kinds:
        raise ScenarioError(f"{file}: no Node has a healthy GPU in its annotation")
    return _keys_of_kinds(list(kinds.values()))


def _keys_of_kinds(kinds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys of a scenario with a node of each kind."""
    kinds = [{key: kind[key] for key in _KIND_KEYS} for kind in kinds]
    first, *others = kinds
    unlike = Counter(
        tuple(kind.items())
        for kind in others
        if {**kind, "gpu_model": ""} != {**first, "gpu_model": ""}
    )
    alike = [kind for kind in kinds if tuple(kind.items()) not in unlike]
    shared = {key: first[key] for key in ("cpus", "memory_mib")}
    return {
        "nodes": len(alike),
        "gpu_models": tuple(str(kind["gpu_model"]) for kind in alike),
        "gpus_per_node": first["gpus"],
        **shared,
        "unlike_nodes": [{"count": count, **dict(kind)} for kind, count in unlike.items()],
    }


def _kind(file: Path, node: Node) -> dict[str, Any] | None:
    """Return the capacity of a node; None without a healthy GPU."""
    gpus = [gpu for gpu in node.gpus if gpu.healthy]
    if not gpus:
        return None
    unlike = sorted({f"{gpu.model} of {gpu.memory_mib:,} MiB" for gpu in gpus})
    if len(unlike) > 1:
        raise ScenarioError(
            f"{file}: Node {node.name} has unlike GPUs: {listed(unlike)}; the simulated nodes' "
            "GPUs are alike"
        )
    return {
        "gpus": len(gpus),
        "gpu_model": gpus[0].model,
        "cpus": node.cpu_milli // _MILLI_PER_CPU,
        "memory_mib": gpus[0].memory_mib,
    }

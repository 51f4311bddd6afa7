"""Parser of documents in YAML, with errors that name the document and the field."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scheduler.model.document_fields import NAME_PATTERN
from scheduler.model.documents import KINDS, OUTPUT_PATTERN, Document, FunctionProfile, Workflow
from scheduler.model.message_text import quoted
from scheduler.model.names import API_VERSION, GROUP
from scheduler.model.yaml_parser import SourceLines, YamlError, parse_yaml

_SPELLING_CUTOFF = 0.8
_WORDS = (  # of pydantic, and for authors of documents
    (re.compile("Extra inputs are not permitted"), "unknown field; remove or rename it"),
    (re.compile("a valid tuple"), "a list"),
    (re.compile("^Tuple (.*) after validation"), r"List \1"),
    (re.compile(r"a valid dictionary( or instance of \w+)?"), "a mapping"),
    (
        re.compile(f"String should match pattern '{re.escape(NAME_PATTERN)}'"),
        "must be lower-case letters, digits and '-', with a letter or digit at both ends",
    ),
    (
        re.compile(f"String should match pattern '{re.escape(OUTPUT_PATTERN)}'"),
        "must be STAGE.OUTPUT, as encoder.y",
    ),
)
_AS_ITEMS = "; write each item after a dash"
_PERCENT, _PERCENT_MAX = re.compile(r"(\d{1,3}(?:\.\d{1,6})?) ?%"), 100
_UNITS: dict[str, dict[str, float]] = {  # by the end of a field's name
    "Ms": {"ms": 1, "s": 1000},
    "S": {"ms": 0.001, "s": 1},
    "Mib": {"Mi": 1, "MiB": 1, "Gi": 1024, "GiB": 1024},
}
_WITH_UNIT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?([A-Za-z]*)")
_EXPONENT = re.compile(r"\d{1,9}(?:\.\d{1,6})?[eE][-+]?\d")  # YAML 1.1 takes 1e3 as text
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_NAME_CHARACTERS_MAX = 128  # namespace and name have at most 63 characters each


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a document, described so that its author can correct it."""

    source: str  # file name or other origin of the text
    document: str  # "Workflow default/image-classification", "document 3", or "" for all
    field: str  # "spec.stages[1].after", or "" for the whole document
    message: str
    warning: bool = False
    reason: str = "Invalid"  # of the condition Accepted
    line: int = 0  # in the source, from 1; 0 if it is not known

    def __str__(self) -> str:
        source = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(filter(None, (source, self.document, self.field, self.message)))


class DocumentError(ValueError):
    """An invalid document; ``problems`` lists its faults."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def read_documents(text: str, source: str) -> tuple[list[Document], list[Problem]]:
    """Parse all documents of this API group in YAML ``text``; return them and all faults.

    Documents of other API groups are skipped: a folder may contain a whole application. An
    invalid document does not hide the others, unless the YAML itself cannot be parsed.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        raws = parse_yaml(text)
    except YamlError as error:
        return [], [Problem(source, "the file", "", f"is not YAML: {error}", line=error.line)]
    lines = SourceLines(text)
    for number, path, item in _placed(raws):
        try:
            document = parse_document(item, source, f"document {number + 1}")
        except DocumentError as error:
            problems.extend(
                replace(problem, line=lines.line(number, [*path, *_path(problem.field)]))
                for problem in error.problems
            )
        else:
            if document is not None:
                documents.append(document)
    return documents, problems


def with_lines(problems: Iterable[Problem], text: str) -> list[Problem]:
    """Add their lines to faults that were found among documents of a text that could be read.

    Of documents with the same name, the last one is meant.
    """
    places = {_label(item): (number, path) for number, path, item in _placed(parse_yaml(text))}
    lines = SourceLines(text)
    located = []
    for problem in problems:
        if not problem.line and problem.document in places:
            number, path = places[problem.document]
            line = lines.line(number, [*path, *_path(problem.field)])
            located.append(replace(problem, line=line))
        else:
            located.append(problem)
    return located


def _placed(raws: Iterable[Any]) -> Iterator[tuple[int, list[str | int], Any]]:
    """Yield the documents, and the items of Lists: number in the text, path from there, value."""
    for number, raw in enumerate(raws):
        if raw is not None:
            for place, item in enumerate(items_of(raw)):
                yield number, [] if item is raw else ["items", place], item


def _label(raw: Any) -> str:
    """Return the name of a document as `Problem.document` has it; empty for an invalid one."""
    try:
        document = parse_document(raw, "")
    except DocumentError:
        return ""
    return "" if document is None else label(document)


def label(document: Document) -> str:
    """Return the name of a document as `Problem.document` has it."""
    if isinstance(document, FunctionProfile):
        return f"{document.kind} {document.metadata.name}"
    return f"{document.kind} {'/'.join(document.key)}"


def parse_document(raw: Any, source: str, fallback_name: str = "document") -> Document | None:
    """Validate one document from parsed YAML or JSON; None if it is of another API group.

    Raises:
        DocumentError: the document is of this API group and invalid.
    """
    if not isinstance(raw, Mapping):
        raise DocumentError(
            [
                Problem(
                    source,
                    fallback_name,
                    "",
                    f"must be a mapping with apiVersion and kind, not a {type(raw).__name__}",
                )
            ]
        )
    kind: Any = raw.get("kind")
    is_served = isinstance(kind, str) and kind in KINDS
    api_version: Any = raw.get("apiVersion", API_VERSION if is_served else None)
    if api_version != API_VERSION:
        if isinstance(api_version, str) and _is_meant(api_version, is_served=is_served):
            message = f"{quoted(api_version)} is not served; use {API_VERSION!r}"
            raise DocumentError(
                [Problem(source, _name_of(raw, fallback_name), "apiVersion", message)]
            )
        return None
    if not is_served:
        text = kind.title() if isinstance(kind, str) else ""
        similar = [name for name in KINDS if get_close_matches(text, [name.title()], n=1)]
        meant = f"write {similar[0]}" if similar else f"it is one of {', '.join(KINDS)}"
        message = f"{'is missing' if kind is None else f'{quoted(kind)} is unknown'}; {meant}"
        raise DocumentError([Problem(source, _name_of(raw, fallback_name), "kind", message)])
    try:
        # By alias only: Kubernetes does not know the snake_case names and would drop the fields.
        # A status is written by programs, and no document is invalid because of it.
        document = {key: value for key, value in raw.items() if key != "status"}
        return KINDS[kind].model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        name = _name_of(raw, fallback_name)
        raise DocumentError(
            Problem(
                source,
                name,
                _field(detail["loc"]),
                _message(detail),
                reason=_reason(detail["type"]),
            )
            for detail in _causes(_renamed(error.errors(include_url=False)))
        ) from None


def _is_meant(api_version: str, *, is_served: bool) -> bool:
    """Return true for a version of this API group that is not served, or a misspelled group."""
    group, slash, _ = api_version.rpartition("/")
    if group == GROUP or not is_served:
        return group == GROUP
    return not slash or bool(get_close_matches(group, [GROUP], cutoff=_SPELLING_CUTOFF))


def stage_limit_problems(workflow: Workflow, stages_max: int, source: str) -> list[Problem]:
    """Return the problem of a workflow with more stages than the operator permits, if it has."""
    count = len(workflow.spec.stages)
    if count <= stages_max:
        return []
    message = (
        f"{count} stages are more than the limit of {stages_max}; merge or remove stages, or raise "
        "ESG_STAGES_MAX"
    )
    name = f"Workflow {'/'.join(workflow.key)}"
    return [Problem(source, name, "spec.stages", message, reason="TooManyStages")]


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop "too short" of a list that is short because of its invalid items: those are listed."""
    return [
        detail
        for detail in details
        if detail["type"] != "too_short"
        or not any(
            len(inner["loc"]) > len(detail["loc"])
            and inner["loc"][: len(detail["loc"])] == detail["loc"]
            for inner in details
        )
    ]


def _renamed(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Join an unknown field and the missing one that it is meant for."""
    missing = {detail["loc"]: detail for detail in details if detail["type"] == "missing"}
    for detail in details:
        *parent, name = detail["loc"] or ("",)
        if detail["type"] != "extra_forbidden":
            continue
        siblings = [str(loc[-1]) for loc in missing if list(loc[:-1]) == parent]
        for meant in get_close_matches(str(name), siblings, n=1):
            del missing[(*parent, meant)]
            detail["msg"] = f"unknown field; write {meant}"
    return [detail for detail in details if detail["type"] != "missing" or detail["loc"] in missing]


def items_of(raw: Any) -> Iterable[Any]:
    """Return the items of a ``List``, as kubectl reads it, or the document itself."""
    if (
        isinstance(raw, Mapping)
        and raw.get("kind") == "List"
        and isinstance(raw.get("items"), list)
    ):
        return list(raw["items"])
    return [raw]


def _name_of(raw: Mapping[Any, Any], fallback: str) -> str:
    kind, metadata = raw.get("kind"), raw.get("metadata")
    kind = kind if isinstance(kind, str) and kind in KINDS else "document"
    if not isinstance(metadata, Mapping):
        return f"{kind} ({fallback})"
    path = [metadata.get("namespace"), metadata.get("name")]
    name = "/".join(part for part in path if isinstance(part, str) and part)
    name = name if name.isprintable() else quoted(name)
    return (
        f"{kind} {name[:_NAME_CHARACTERS_MAX]}"
        if isinstance(path[1], str)
        else f"{kind} ({fallback})"
    )


def _field(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _path(field: str) -> list[str | int]:
    """Return the keys and indices of a field; `_field` is the inverse for keys without dots."""
    return [int(index) if index else key for key, index in _PART.findall(field)]


def _reason(kind: str) -> str:
    """Return the type of an error that the models define; pydantic's own are in lower case."""
    return kind if kind[0].isupper() else "Invalid"


def _message(detail: ErrorDetails) -> str:
    message, value = detail["msg"].removeprefix("Value error, "), detail["input"]
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    if isinstance(value, str | int | float):
        message = f"{message} (given: {quoted(value)})"
    return message + _hint(detail)


def _number_of(text: str, field: str) -> str:
    """Return the number of a text, whose unit the field's name has."""
    quantity = _WITH_UNIT.fullmatch(text)
    if quantity is not None and not quantity[2]:
        return f"{quantity[1]} without quotes"
    for end, units in _UNITS.items():
        if quantity is not None and field.endswith(end) and quantity[2] in units:
            return f"{float(quantity[1]) * units[quantity[2]]:g}: its unit stands in the name"
    if _EXPONENT.fullmatch(text):
        return f"{float(text):.15g} without quotes and exponent"
    return "a number, without unit and quotes"


def _hint(detail: ErrorDetails) -> str:
    """Return what to write in place of a value, if that is likely."""
    kind, value = detail["type"], detail["input"]
    if kind == "tuple_type":
        return f"; write [{quoted(value)}]" if isinstance(value, str) else _AS_ITEMS
    if kind == "invalid_key" and isinstance(value, int):
        return "; write numbers without a comma between their digits"
    is_ratio = kind == "less_than" and detail["ctx"]["lt"] == 1 and value > 1
    if is_ratio and value <= _PERCENT_MAX:
        return f"; {value:g} % is {value / _PERCENT_MAX:g}"
    if kind in {"float_type", "int_type"}:
        return _number_hint(value, str(detail["loc"][-1]))
    return ""


def _number_hint(value: Any, field: str) -> str:
    if isinstance(value, str):
        percent = _PERCENT.fullmatch(value)
        if percent is not None:
            return f"; {percent[1]} % is {float(percent[1]) / _PERCENT_MAX:g}"
        return f"; write {_number_of(value, field)}"
    if isinstance(value, float) and 0 < value < 1 and field.endswith("Percent"):
        return f"; the ratio {value:g} is {_PERCENT_MAX * value:g} percent"
    return ""

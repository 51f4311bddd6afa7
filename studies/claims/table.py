"""Table of claims in docs/claims.md: the rows that were measured are written again."""

from collections.abc import Mapping, Sequence

from studies.claims.claim import Claim
from studies.page import blocks_of, markdown_row, markdown_table, with_blocks

_BLOCK = "claims"
_HEAD = ("system", "claim of its abstract", "measured here", "verdict", "why")
_NOT_RUN = "not run"


def with_claims(text: str, claims: Sequence[Claim], results: Mapping[str, tuple[str, str]]) -> str:
    """Return the document with the results of these systems.

    Args:
        text: document; results of other systems stay as they are.
        claims: all claims, in the order of the rows.
        results: measured text and verdict by system.

    Raises:
        MarkError: the document has no place for the table.
    """
    shown = {
        cells[0]: (cells[2], cells[3])
        for line in blocks_of(text).get(_BLOCK, "").splitlines()
        if len(cells := line.removeprefix("| ").removesuffix(" |").split(" | ")) == len(_HEAD)
    }
    lines = []
    for claim in claims:
        measured, verdict = results.get(claim.system) or shown.get(claim.system, ("", _NOT_RUN))
        row = (claim.system, claim.published, measured, verdict, claim.reason)
        lines.append(markdown_row(row))
    table = "".join(f"{line}\n" for line in lines)
    return with_blocks(text, {_BLOCK: f"{markdown_table(_HEAD, ())}{table}"})

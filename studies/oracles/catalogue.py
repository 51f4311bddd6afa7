"""All oracles in the order of their numbers."""

from studies.oracles import (
    andreas,
    chronus,
    decima,
    gavel,
    muri,
    pollux,
    sgprs,
    sharing,
    shockwave,
    synergy,
    tiresias,
)
from studies.oracles.oracle import PublishedFigure

ORACLES: tuple[PublishedFigure, ...] = tuple(
    sorted(
        (
            *pollux.ORACLES,
            *sgprs.ORACLES,
            *synergy.ORACLES,
            *tiresias.ORACLES,
            *muri.ORACLES,
            *gavel.ORACLES,
            *sharing.ORACLES,
            *shockwave.ORACLES,
            *chronus.ORACLES,
            *decima.ORACLES,
            *andreas.ORACLES,
        ),
        key=lambda oracle: oracle.number,
    )
)

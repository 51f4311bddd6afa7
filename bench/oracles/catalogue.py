"""All oracles in the order of their numbers."""

from bench.oracles import (
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
from bench.oracles.oracle import Oracle

ORACLES: tuple[Oracle, ...] = tuple(
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

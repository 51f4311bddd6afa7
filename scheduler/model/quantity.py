"""Kubernetes quantities (``500m``, ``2``, ``1.5Gi``), as far as the scheduler reads them.

Source: k8s.io/apimachinery/pkg/api/resource, the serialisation of ``Quantity``.
"""

import re
from decimal import ROUND_CEILING, Decimal

from scheduler.model.message_text import quoted

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"),
    "P": Decimal("1e15"), "E": Decimal("1e18"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,24}(?:\.\d{0,24})?|\.\d{1,24}))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,2}))?",
    re.ASCII,
)
_LIMIT = Decimal(2**63 - 1)  # Kubernetes keeps quantities in int64


class QuantityError(ValueError):
    """A text that is no quantity, or one out of range."""


def milli(text: object) -> int:
    """A quantity in thousandths, rounded up as Kubernetes does: ``"1.5"`` is 1500.

    Raises:
        QuantityError: it is not a quantity, is negative, or beyond int64.
    """
    return _scaled(text, Decimal(1000))


def whole(text: object) -> int:
    """A quantity in units, rounded up: what an extended resource counts."""
    return _scaled(text, Decimal(1))


def _text(value: object) -> str:
    """Return the text of a value as in JSON; "" if it is neither text nor a number in range."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(value) if abs(value) < 2**63 else ""


def _scaled(text: object, scale: Decimal) -> int:
    match = _QUANTITY.fullmatch(_text(text))
    if match is None:
        raise QuantityError(f"{quoted(text)} is no Kubernetes quantity; write it as 2, 500m or 1.5")
    value = Decimal(match["number"]) * scale
    if match["exponent"]:
        value *= Decimal(10) ** int(match["exponent"])
    else:
        value *= _SUFFIXES[match["suffix"] or ""]
    if value < 0 or value > _LIMIT:
        raise QuantityError(f"{quoted(text)} is out of range: it must lie between 0 and 2^63 - 1")
    return int(value.to_integral_value(rounding=ROUND_CEILING))

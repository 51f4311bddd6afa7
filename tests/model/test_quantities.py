"""Kubernetes quantities agree with a naive twin and obey their laws."""

# ruff: noqa: E501 - a row of a table is one line

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.quantity import QuantityError, milli, whole

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
FACTORS = {s: Fraction(10) ** p for s, p in POWERS.items()} | {
    s: Fraction(2) ** p for s, p in BINARY.items()
}


def naive(number, suffix, scale):
    """Compute with exact fractions, rounded up."""
    exact = Fraction(number) * FACTORS[suffix] * scale
    return -(-exact.numerator // exact.denominator)


@given(
    st.decimals(0, 10**9, allow_nan=False, places=6).map(lambda d: f"{d:f}"),
    st.sampled_from(sorted(FACTORS)),
    st.sampled_from([(milli, 1000), (whole, 1)]),
)
def test_as_the_naive_twin(number, suffix, reader):
    """Every number with every suffix is parsed exactly and rounded up, or is out of range."""
    read, scale = reader
    expected = naive(number, suffix, scale)
    if expected > 2**63 - 1:
        with pytest.raises(QuantityError, match="out of range"):
            read(number + suffix)
    else:
        assert expected == read(number + suffix)


@given(st.integers(0, 10**6), st.integers(-9, 9))
def test_exponents(number, exponent):
    """``12e3`` and ``12E3`` are 12,000."""
    exact = Fraction(number) * Fraction(10) ** exponent
    expected = -(-exact.numerator // exact.denominator)
    assert expected == whole(f"{number}e{exponent}") == whole(f"{number}E{exponent}")


@given(st.integers(0, 2**40))
def test_numbers_are_parsed_like_text(number):
    """YAML has ``cpu: 2`` as a number."""
    assert whole(str(number)) == whole(number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1000), ("1.5", 1500), ("500m", 500), ("0.1m", 1), ("1n", 1), (".5", 500), ("2.", 2000), ("+3", 3000), ("0", 0), ("-0", 0), ("1Ki", 1_024_000), (1.25, 1250)],
)  # fmt: skip
def test_thousandths(text, expected):
    """Fractions of a thousandth are rounded up, as in Kubernetes."""
    assert expected == milli(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "one", "1.5.2", "1mm", "1Kim", "1e", "1e999", "1e9999", "0x10", "1_000", "\u0661", "NaN", "inf", "-inf", "--1", "1\n", "1\0", "1" * 25, "1" * 100_000, None, True, [], {}, b"1", float("nan"), float("inf"), 10**400],
    ids=lambda text: repr(text)[:20],
)  # fmt: skip
def test_invalid_quantities(text):
    """The error has the value, shortened, and the valid forms."""
    with pytest.raises(
        QuantityError, match="is no Kubernetes quantity; write it as 2, 500m or "
    ) as raised:
        milli(text)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("text", ["-1", "-1n", "-1e9", "9223372036854775808", "8Ei", "10E"])
def test_quantities_out_of_range(text):
    """Negative quantities and those beyond int64 are rejected."""
    with pytest.raises(QuantityError, match="is out of range"):
        whole(text)


@given(st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans())
def test_any_value_is_parsed_or_rejected(value):
    """Every value gives an int64 or a QuantityError."""
    try:
        read = milli(value)
    except QuantityError:
        return
    assert 0 <= read < 2**63

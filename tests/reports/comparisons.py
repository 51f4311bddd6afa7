"""Comparisons of policies made by hand."""

from workbench.reports.simulated import Comparison, SimulatedPolicy

FACTS = (("Cluster", "16 nodes"), ("Profiles", "as given"))


def simulated(policy="exact", setting="strict-light", *, hits=(0.99, 0.97), **changed):
    """One policy under one setting; two seeds of a thousand requests."""
    known = {
        "policy": policy,
        "setting": setting,
        "requests": 2_000,
        "misses": 35,
        "dropped": 5,
        "hit_ratios": hits,
        "costs_per_1000": (0.25, 0.26),
        "reserved_per_1000": 0.0125,
        "p50_over_slo": 0.71,
        "p99_over_slo": 1.04,
        "latencies": ((0.5, 0.1), (0.9, 0.8), (1.0, 0.98), (1.4, 0.9975)),
        "fill": ((0.5, 0.1), (1.5, 0.62), (2.5, 0.3)),
        "fill_mean": 0.34,
        "missed_ms": (12.0, 300.5, 4.25, 800.0),
        "batch_mean": 1.25,
        "dispatches_per_s": 128.4,
        "cold_starts": 17.0,
    }
    return SimulatedPolicy(**(known | changed))


def compared(policies=("exact", "esg"), settings=("strict-light", "relaxed-heavy"), **changed):
    """Every policy under every setting."""
    found = tuple(simulated(policy, setting) for setting in settings for policy in policies)
    return Comparison(**({"policies": found, "facts": FACTS} | changed))

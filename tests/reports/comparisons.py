"""Factories of comparisons of policies."""

from workbench.reports.points import Waterfall
from workbench.reports.simulated import Comparison, SimulatedPolicy

FACTS = (("Cluster", "16 nodes"), ("Profiles", "as given"))


PARTS = (
    ("limit", 1.0),
    ("unserved", -0.01),
    ("batching", 0.12),
    ("planning", 0.02),
    ("noise", 0.004),
    ("starts", 0.03),
    ("idle", 0.7),
    ("fragmentation", 0.9),
)


def split(policy):
    """Parts of a cost that is 1.864 of its limit."""
    return Waterfall(policy, PARTS)


def simulated(policy="exact", setting="strict-light", *, hits=(0.99, 0.97), **changed):
    """One policy under one setting; two seeds of a thousand requests."""
    values = {
        "name": policy,
        "setting": setting,
        "requests": 2_000,
        "misses": 35,
        "dropped": 5,
        "hit_ratios": hits,
        "costs_dollars_per_thousand": (0.25, 0.26),
        "idle_dollars_per_thousand": 0.0125,
        "paid_bound_ratio": 1.864,
        "split": split(policy),
        "state": "steady from 20 s",
        "hits_over_time": ((5.0, 0.4), (15.0, 0.97), (25.0, 0.99)),
        "p50_slo_ratio": 0.71,
        "p99_slo_ratio": 1.04,
        "latencies": ((0.5, 0.1), (0.9, 0.8), (1.0, 0.98), (1.4, 0.9975)),
        "utilisation": ((0.5, 0.1), (1.5, 0.62), (2.5, 0.3)),
        "mean_utilisation_ratio": 0.34,
        "missed_ms": (12.0, 300.5, 4.25, 800.0),
        "mean_batch_size": 1.25,
        "dispatches_per_s": 128.4,
        "cold_starts": 17.0,
    }
    return SimulatedPolicy(**(values | changed))


def compared(policies=("exact", "esg"), settings=("strict-light", "relaxed-heavy"), **changed):
    """Every policy under every setting."""
    results = tuple(simulated(policy, setting) for setting in settings for policy in policies)
    return Comparison(**({"policies": results, "facts": FACTS} | changed))

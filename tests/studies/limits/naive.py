"""Slow, obvious twins of the limits: every choice is tried."""

from itertools import pairwise, product
from math import ceil, inf, sqrt


def rows_of(catalogue, function):
    """Configurations of a function with their GPU models."""
    return [
        (gpu.model, c) for gpu in catalogue.profile(function).spec.gpus for c in gpu.configurations
    ]


def choices_in_time(catalogue, rates_rps):
    """Yield one configuration of each function, and its rate, where all workflows are in time."""
    workflows = [w for key, w in catalogue.workflows.items() if rates_rps.get(key)]
    rates = {}
    for workflow in workflows:
        for stage in workflow.spec.stages:
            rates[stage.function] = rates.get(stage.function, 0.0) + rates_rps[workflow.key]
    for chosen in product(*(rows_of(catalogue, function) for function in rates)):
        choice = dict(zip(rates, chosen, strict=True))
        if all(path_ms(w, choice) <= w.spec.slo.latency_ms * (1 + 1e-9) for w in workflows):
            yield [(model, c, rates[function]) for function, (model, c) in choice.items()]


def path_ms(workflow, choice):
    """Longest path of a workflow under a choice by function."""
    ends_ms = {}
    for stage in workflow.spec.stages:  # listed in their order
        begin_ms = max((ends_ms[p] for p in stage.after), default=0.0)
        ends_ms[stage.name] = begin_ms + choice[stage.function][1].latency_ms
    return max(ends_ms.values())


def busy(c, rate_rps):
    return rate_rps * c.latency_ms / 1000.0 / c.batch


def count(c, rate_rps, reserve_ratio):
    load = busy(c, rate_rps)
    return ceil(load + reserve_ratio * sqrt(load) - 1e-9)


def least_processes_dollars(catalogue, rates_rps, prices, reserve_ratio):
    """Price of whole processes for a second, over all choices in time."""
    return min(
        (
            sum(
                count(c, rate, reserve_ratio)
                * prices.request_cost_dollars(1000.0, c.cpu, c.gpu_percent, 1, model)
                for model, c, rate in choice
            )
            for choice in choices_in_time(catalogue, rates_rps)
        ),
        default=inf,
    )


def fewest_nodes(catalogue, rates_rps, room, reserve_ratio, *, pooled):
    """Whole nodes with the room for all processes, over all choices in time."""
    fewest = inf
    for choice in choices_in_time(catalogue, rates_rps):
        if any(model != room.gpu_model for model, _, _ in choice):
            continue
        gpus = cpus = memory_mib = 0.0
        for _, c, rate in choice:
            processes = count(c, rate, reserve_ratio)
            held = busy(c, rate) if pooled else processes
            gpus += held * c.gpu_percent / 100
            cpus += held * c.cpu
            memory_mib += processes * c.memory_mib
        nodes = max(gpus / room.gpus, cpus / room.cpus, memory_mib / (room.gpus * room.memory_mib))
        fewest = min(fewest, ceil(nodes - 1e-6))
    return fewest


def least_ready_ms(runs, start_ms, ready_at_ms=None):
    """Idle times and starts, over all processes that each run can take: new ones or idle ones."""

    def cost(i, idle):
        if i == len(runs):
            return 0.0
        begin_ms, end_ms = runs[i]
        options = [start_ms + cost(i + 1, (*idle, end_ms))]
        for place, since_ms in enumerate(idle):
            if since_ms <= begin_ms:
                rest = (*idle[:place], *idle[place + 1 :], end_ms)
                options.append(begin_ms - since_ms + cost(i + 1, rest))
        return min(options)

    return cost(0, () if ready_at_ms is None else (ready_at_ms,) * len(runs))


def least_trace_dollars(catalogue, key, times_ms, prices):
    """Cost of one workflow's requests, over all consecutive groups and configurations."""
    spec = catalogue.workflow(*key).spec
    count = len(times_ms)
    cuts = [
        [0, *(i + 1 for i in range(count - 1) if bits >> i & 1), count]
        for bits in range(2 ** (count - 1))
    ]

    def batches(stage):
        """Yield the groups of a stage with configurations: (first, end, ms, dollars) of each."""
        rows = rows_of(catalogue, stage.function)
        for cut in cuts:
            groups = list(pairwise(cut))
            fitting = [
                [
                    (
                        a,
                        b,
                        c.latency_ms,
                        prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, 1, model),
                    )
                    for model, c in rows
                    if c.batch >= b - a
                ]
                for a, b in groups
            ]
            yield from product(*fitting)

    minimum = inf
    for schedule in product(*(list(batches(stage)) for stage in spec.stages)):
        dollars = sum(group[3] for groups in schedule for group in groups)
        if dollars < minimum and in_time(spec, schedule, times_ms):
            minimum = dollars
    return minimum


def in_time(spec, schedule, times_ms):
    """Run each batch when the last of its requests is there; all end within the SLO."""
    ends_ms = {}
    for stage, groups in zip(spec.stages, schedule, strict=True):
        ends = [0.0] * len(times_ms)
        for a, b, run_ms, _ in groups:
            ready = max(
                max([times_ms[i], *(ends_ms[p][i] for p in stage.after)]) for i in range(a, b)
            )
            ends[a:b] = [ready + run_ms] * (b - a)
        ends_ms[stage.name] = ends
    return all(
        ends[i] - times_ms[i] <= spec.slo.latency_ms * (1 + 1e-9)
        for ends in ends_ms.values()
        for i in range(len(times_ms))
    )

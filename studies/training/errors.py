"""Exceptions of the simulator of training clusters."""


class JobsError(Exception):
    """A run cannot start or go on; the message says why and what to do."""


class ImpossiblePlacementError(JobsError):
    """A policy returned a placement that the cluster does not have; names job and node."""

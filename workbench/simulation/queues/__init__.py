"""Engine for policies that choose configurations from queues of requests."""

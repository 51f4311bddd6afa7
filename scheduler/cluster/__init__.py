"""The cluster: reports from the API server, and the few writes to it.

Only this room imports `kubernetes` (and the HTTP client under it), and it holds no policy. It
reports the cluster's state (`reflector`), writes the decisions of others (`binding`, `events`), and
generates the CRDs. It imports `scheduler.model` and no other room, and no exception of `kubernetes`
or `aiohttp` leaves it. Everything here runs on one asyncio event loop: no threads, no locks.
"""

"""The cluster: what is heard from the API server, and the few things that are written to it.

Law of the room: it is the only one that imports `kubernetes` (and the HTTP client under it), and it
holds no policy. It says what is there (`reflector`), writes what others decided (`binding`,
`events`), and generates the CRDs; which node, which GPU and whether at all is decided elsewhere.
It may import `scheduler.model` and no other room, and the exceptions of `kubernetes` and `aiohttp`
never leave it. Everything here runs on one asyncio event loop: no threads, no locks.
"""

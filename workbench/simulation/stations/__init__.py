"""Stations: shares of GPUs that run one stage after the other, in place of containers.

Law of the room: a policy queues the stages itself and sees no events; the loop, which is outside,
owns the clock, the requests and the speeds. Both read profiles through `ShareTimes`.
"""

"""The gateway's way: the live dispatcher over pods that hold a fixed share while they are idle."""

from typing import ClassVar, NoReturn

from workbench.simulation.policy import Policy, SchedulingRequest


class WarmPolicy(Policy):
    """Runs `scheduler.dispatch` instead of answering for each queue."""

    name: ClassVar[str] = "warm"
    dispatches: ClassVar[bool] = True
    prewarms: ClassVar[bool] = False

    def candidates(self, request: SchedulingRequest) -> NoReturn:
        """Never called: the dispatcher decides."""
        raise NotImplementedError

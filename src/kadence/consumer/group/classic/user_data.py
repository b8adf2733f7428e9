"""Collects the user data of this member's assignors for the leader's assignor, before each JoinGroup.

Kafka's own assignors answer at once. Assignors of users may take any time, so they are called on the helper thread.
The join waits for them; heartbeats do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kadence.consumer.assignors import BUILT_IN, Assignor, LastAssignment
from kadence.consumer.request_manager import Jobs
from kadence.errors import AssignorError, KafkaError

__all__ = ["UserData", "is_built_in"]


class UserData:
    """Collects the user data of this member's assignors before each JoinGroup.

    Attributes:
        last: what the group gave this member last. result: by assignor, once it is there.
        error: why there will be none.
    """

    def __init__(self, assignors: Iterable[Assignor], jobs: Jobs) -> None:
        self.last = LastAssignment()
        self.result: Mapping[str, bytes | None] | None = None
        self.error: KafkaError | None = None
        self._assignors = tuple(assignors)
        self._jobs = jobs
        self._attempt = 0
        self._asked = False

    def stop(self) -> None:
        """Forget what was gathered: it is of the rebalance before."""
        self._attempt += 1
        self._asked = False
        self.result = self.error = None

    def gather(self) -> None:
        """Ask, if that has not been done; the answer is in `result` or `error`, now or later."""
        if self._asked:
            return
        self._asked = True
        if all(is_built_in(assignor) for assignor in self._assignors):
            self.result = self._gathered(self.last)
            return
        attempt, last = self._attempt, self.last

        def done(now: int, result: object, error: Exception | None) -> None:
            del now
            if attempt != self._attempt:
                return
            if error is None and isinstance(result, dict):
                self.result = result
            else:
                self.error = error if isinstance(error, AssignorError) else AssignorError(repr(error))

        self._jobs.submit(lambda: self._gathered(last), done)

    def _gathered(self, last: LastAssignment) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for assignor in self._assignors:
            try:
                data = assignor.user_data(last)
            except Exception as error:
                raise KafkaError(
                    f"the assignor {assignor.name!r} failed in user_data(): {error!r}"
                ) from error
            if data is not None and not isinstance(data, bytes):
                raise AssignorError(
                    f"the assignor {assignor.name!r} returned user data that are not bytes: {data!r}"
                )
            found[assignor.name] = data
        return found


def is_built_in(assignor: Assignor) -> bool:
    """Whether it is Kafka's, written here: it neither blocks nor fails."""
    return type(assignor) in BUILT_IN.values()

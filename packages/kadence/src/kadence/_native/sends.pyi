from typing import Any, TypeAlias, final

from kadence._native.append import OpenBatch
from kadence._native.drain import Asked

# `kadence.producer.sequences` has the class.
_Delivery: TypeAlias = Any

@final
class SendForm:
    def __init__(
        self, intake: Any, delivery: _Delivery, head: bytes, tail: bytes, answer: bytes, free_at: int
    ) -> None: ...
    def remind(self) -> None: ...
    def send(self, batch: OpenBatch) -> Asked | None: ...

def found_in(asked: Asked) -> tuple[int, int]: ...

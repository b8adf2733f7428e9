from typing import Any, final

from typing_extensions import Buffer

@final
class Reader:
    def __new__(cls, column: Any, starts: bytes, offsets: bytes, keeps_all: bool) -> Reader: ...
    def read(self, ends: Buffer, data: Buffer, start: int, count: int) -> tuple[Any, list[int]] | None: ...

"""What a run has compared, and the differences that are known."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.registry.parity.differences import Answer, known
from tests.registry.parity.plain import first_difference, same

__all__ = ["Counted", "Difference"]


@dataclass(frozen=True)
class Difference:
    """Two readers that do not agree, and all that is needed to see it again."""

    format: str
    reader: str
    expected: Any
    found: Any
    why: str
    writer: str
    schema: str
    data: str

    def place(self) -> tuple[str, Any, Any]:
        """Where the two values differ first, as names of fields, and what stands there."""
        return first_difference(self.expected, self.found)

    def __str__(self) -> str:
        place, expected, found = self.place()
        return (
            f"{self.reader} at {place or 'its top'}: {str(found)[:300]}\n  expected {str(expected)[:300]} "
            f"{self.why[:300]}\n  writer {self.writer}\n  reader {self.schema}\n  data   {self.data}"
        )


@dataclass
class Counted:
    """A run's figures.

    Attributes:
        documents: bytes of one schema that were read as one schema. answers: how often a reader agreed.
        known: how often each line of the table of known differences (`differences.KNOWN`) was met.
    """

    documents: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    unexplained: list[Difference] = field(default_factory=list)

    def compare(self, difference: Difference) -> None:
        """Count one answer."""
        if same(difference.expected, difference.found):
            self.answers[f"{difference.format}, {difference.reader}"] += 1
            return
        it = difference
        schema: Any = it.schema
        writer: Any = it.writer
        if it.format != "protobuf":
            schema, writer = json.loads(it.schema), json.loads(it.writer)
        line = known(Answer(it.format, it.reader, it.expected, it.found, it.why, schema, writer))
        if line is not None:
            self.known[line.text] += 1
        else:
            self.unexplained.append(difference)

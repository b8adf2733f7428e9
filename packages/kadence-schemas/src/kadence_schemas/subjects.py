"""The subject of a schema: Confluent's three strategies, and the contexts of subjects.

Each context counts its ids from 1. A subject in a context is named ``:.CONTEXT:SUBJECT``; any other is in the default
context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.errors import ConfigError

__all__ = [
    "SubjectNameStrategy",
    "checked_subject",
    "context_of",
    "may_name_contexts",
    "qualified",
    "reading_strategy",
    "record_subject",
    "strategy_of",
    "topic_record_subject",
    "topic_subject",
]

SubjectNameStrategy = Callable[[str, bool, str | None], str]
"""Gets the topic, whether it is for keys, and the full name of the record; returns the subject."""


def topic_subject(topic: str, is_key: bool, record: str | None) -> str:
    """``TOPIC-key`` or ``TOPIC-value``: all records of a topic have one schema and its later versions. The default."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_subject(topic: str, is_key: bool, record: str | None) -> str:
    """The full name of the record: a type has one schema and its later versions, in all topics."""
    return _named(record)


def topic_record_subject(topic: str, is_key: bool, record: str | None) -> str:
    """``TOPIC-`` and the full name of the record: the types of a topic evolve independently."""
    return f"{topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if not record:
        raise ConfigError(
            "this strategy names subjects after records, but the schema has no name: give it one (in JSON Schema the "
            'title), or use subject_name_strategy="topic"'
        )
    return record


_NAMED: Final[dict[str, SubjectNameStrategy]] = {
    "topic": topic_subject,
    "record": record_subject,
    "topic_record": topic_record_subject,
}


def strategy_of(given: SubjectNameStrategy | str) -> SubjectNameStrategy:
    """A strategy by its name or its Java class, or itself.

    Raises:
        ConfigError: there is none of this name.
    """
    if not isinstance(given, str):
        return given
    last = given.rpartition(".")[2].removesuffix("NameStrategy")
    java = {"Topic": "topic", "Record": "record", "TopicRecord": "topic_record"}
    found = _NAMED.get(java.get(last, given.lower()))
    if found is None:
        raise ConfigError(f"there is no subject name strategy {given!r}; there are {', '.join(_NAMED)}")
    return found


def checked_subject(found: object) -> str:
    """The result of a user-defined strategy.

    Raises:
        ConfigError: it is not a string.
    """
    if not isinstance(found, str):
        raise ConfigError(
            f"a subject name strategy must return the name of a subject, not {type(found).__name__}"
        )
    return found


def may_name_contexts(given: SubjectNameStrategy | str) -> bool:
    """Whether the subjects of a strategy may name contexts. Those of Confluent's three are in the client's context."""
    return strategy_of(given) not in _NAMED.values()


def reading_strategy(
    given: SubjectNameStrategy | str,
) -> Callable[[str, bool, str | None], str | None]:
    """As `strategy_of`, for looking up the schemas of records.

    The record's name is only in the schema, so strategies by record give no subject unless it is known before.

    Raises:
        ConfigError: there is none of this name.
    """
    strategy = strategy_of(given)
    if strategy not in (record_subject, topic_record_subject):
        return strategy
    return lambda topic, is_key, record: strategy(topic, is_key, record) if record else None


def context_of(subject: str | None) -> str | None:
    """The context that a subject names; None: it names none, or there is no subject."""
    if subject is None or not subject.startswith(":."):
        return None
    name, colon, _ = subject[1:].partition(":")
    return name if colon else None


def qualified(subject: str, context: str | None) -> str:
    """A subject in a context, unless it names one itself."""
    return subject if context is None or subject.startswith(":") else f":{context}:{subject}"

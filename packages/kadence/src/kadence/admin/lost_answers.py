"""Changes of topics and groups whose response was lost. The repeated request is refused, as they were made already.

A repeated request is refused as TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, UNKNOWN_TOPIC_OR_PARTITION or
GROUP_ID_NOT_FOUND where the one before it has taken effect. If the topic or group is as this call wants it, the call
counts it as changed; else it raises the refusal, with a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from kadence.admin.calls import Ask, Calls
from kadence.admin.configs import ConfigEntry, ConfigResource, describe_configs, text_of
from kadence.admin.values import NewTopic, Outcomes, TopicDescription
from kadence.client.waits import Waits
from kadence.errors import BrokerError, KafkaError
from kadence.protocol import error_codes as ec

__all__ = ["Change", "faults_of", "partitions_of"]

V = TypeVar("V")

_NOTE: Final = "an earlier request of this call was not answered, so this call may have made a change"


class Change:
    """One change of topics or groups, which may be sent any number of times.

    Args:
        refused_as: the error of a broker to which the change was made before.
    """

    def __init__(self, calls: Calls, refused_as: int) -> None:
        self._calls = calls
        self._refused_as = refused_as
        self._unsure: set[str] = set()

    def ask(
        self, message: Any, names: Collection[str], deadline: int, *, max_version: int | None = None
    ) -> Waits[Any]:
        """The controller's answer to a request about these topics."""
        controller = yield from self._calls.controller(deadline)
        ask = Ask(message, controller, max_version=max_version)
        try:
            return (yield from self._calls.ask(ask, deadline))
        finally:
            self.asked(ask, names)

    def asked(self, ask: Ask, names: Iterable[str]) -> None:
        """A request about these was sent, and answered or not."""
        if ask.is_unanswered:
            self._unsure.update(names)

    def refused(self, name: str, code: int) -> None:
        """A broker answered so."""
        if code == ec.REQUEST_TIMED_OUT:
            # The controller has begun with it.
            self._unsure.add(name)

    def repeated(self, outcomes: Outcomes[str, Any]) -> list[str]:
        """Topics whose change may have been refused because an unanswered request of this call has made it."""
        return [
            name
            for name, error in outcomes.errors.items()
            if name in self._unsure and isinstance(error, BrokerError) and error.code == self._refused_as
        ]

    def settled(
        self,
        outcomes: Outcomes[str, V],
        names: Iterable[str],
        looked_at: Mapping[str, tuple[V, str] | KafkaError],
    ) -> Outcomes[str, V]:
        """The outcomes, with the changes that an unanswered request made.

        Args:
            looked_at: what became of the topics of `repeated`: for each the outcome, and in what it is not as wanted
                ("" if it is).
        """
        made: dict[str, V] = {}
        for name, found in looked_at.items():
            if isinstance(found, KafkaError):
                outcomes.errors[name].add_note(f"{_NOTE}; it could not be looked at: {found}")
            elif found[1]:
                outcomes.errors[name].add_note(f"{_NOTE}; but {found[1]}")
            else:
                made[name] = found[0]
        values = {**outcomes, **made}
        return Outcomes(
            {name: values[name] for name in names if name in values},
            {name: error for name, error in outcomes.errors.items() if name not in made},
        )


def faults_of(
    calls: Calls, deadline: int, wanted: Mapping[str, NewTopic], found: Mapping[str, TopicDescription]
) -> Waits[dict[str, tuple[NewTopic, str] | KafkaError]]:
    """Topics that are there, and in what each is not as ``wanted``."""
    resources = [ConfigResource("topic", name) for name in found if wanted[name].configs]
    settings: Outcomes[ConfigResource, dict[str, ConfigEntry]] = Outcomes()
    if resources:
        settings = yield from describe_configs(calls, deadline, resources)
    faults: dict[str, tuple[NewTopic, str] | KafkaError] = {}
    for name, topic in found.items():
        resource, given = ConfigResource("topic", name), wanted[name]
        if resource in settings.errors:
            faults[name] = settings.errors[resource]
            continue
        replicas = min((len(each.replicas) for each in topic.partitions), default=0)
        is_other = [
            f"{what} and not {asked}"
            for what, has, asked in (
                (f"it has {len(topic.partitions)} partitions", len(topic.partitions), given.partitions),
                (f"it has {replicas} replicas", replicas, given.replication_factor),
            )
            if asked not in (-1, has)
        ]
        is_other += [
            f"its {key} is {has and has.value} and not {text_of(value)}"
            for key, value in given.configs.items()
            if not _is(has := settings.get(resource, {}).get(key), text_of(value))
        ]
        faults[name] = NewTopic(name, len(topic.partitions), replicas, given.configs), "; ".join(is_other)
    return faults


def partitions_of(total: int, found: TopicDescription) -> tuple[int, str]:
    """A topic that was to have ``total`` partitions, and in what it is not so."""
    has = len(found.partitions)
    return has, "" if has == total else f"it has {has} partitions and not {total}"


def _is(entry: ConfigEntry | None, value: str) -> bool:
    """True if a setting has this value, which a broker may write in another way."""
    return entry is not None and (entry.is_sensitive or _plain(entry.value or "") == _plain(value))


def _plain(value: str) -> str:
    return value.replace(" ", "").lower()

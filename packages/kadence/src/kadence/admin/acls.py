"""Access rules (ACLs): the messages, and Kafka's numbers for the words in `Acl` and `AclFilter`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from kadence.admin.arguments import check, several
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.create_acls import AclCreation, CreateAclsRequest
from kadence.protocol.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from kadence.protocol.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource

__all__ = ["Acl", "AclFilter", "create_acls", "delete_acls", "describe_acls"]


@dataclass(frozen=True, slots=True)
class Acl:
    """One access rule: it allows or denies a principal an operation on a resource (KIP-11, KIP-290).

    The words are Kafka's, in lower case.

    Attributes:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
        resource_name: its name; ``*``: all; "kafka-cluster": the cluster. principal: e.g. ``User:alice``.
        operation: "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
            "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens" or
            "two_phase_commit".
        permission: "allow" or "deny". host: the client's address, ``*`` for all.
        pattern_type: "literal", or "prefixed": the rule is for all names that begin with ``resource_name``.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "allow"
    host: str = "*"
    pattern_type: str = "literal"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of access rules, with the fields of `Acl`. A field that is left out matches every rule.

    Attributes:
        pattern_type: also "match": every rule that applies to ``resource_name``, including prefixed ones and ``*``.
    """

    resource_type: str = "any"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "any"
    permission: str = "any"
    host: str | None = None
    pattern_type: str = "any"


F = TypeVar("F", DescribeAclsRequest, DeleteAclsFilter)

_UNKNOWN: Final = "unknown"

_RESOURCES: Final = {
    "any": 1, "topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7,
}  # fmt: skip
_PATTERNS: Final = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
_OPERATIONS: Final = {
    "any": 1, "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "cluster_action": 9, "describe_configs": 10, "alter_configs": 11, "idempotent_write": 12, "create_tokens": 13,
    "describe_tokens": 14, "two_phase_commit": 15,
}  # fmt: skip
_PERMISSIONS: Final = {"any": 1, "deny": 2, "allow": 3}


@operation
def describe_acls(calls: Calls, deadline: int, wanted: AclFilter | None = None) -> Waits[list[Acl]]:
    """The access rules that match a filter, sorted; without a filter all of them.

    Raises:
        BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
    """
    sought = as_filter(wanted)

    def attempt(deadline: int) -> Waits[list[Acl]]:
        answer = yield from calls.ask(Ask(_filter(DescribeAclsRequest, sought)), deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "ACLs", answer.error_message)
        return sorted(
            (_described(resource, acl) for resource in answer.resources for acl in resource.acls), key=_order
        )

    return calls.settle_one(attempt, deadline)


@operation
def create_acls(calls: Calls, deadline: int, acls: Acl | Iterable[Acl]) -> Waits[Outcomes[Acl, None]]:
    """Add one or several access rules. A rule that exists already counts as added.

    Raises:
        BrokerError: SECURITY_DISABLED: the brokers have no authorizer; INVALID_REQUEST: for example, a principal
            without its type (``User:``).
    """
    known = {acl: _creation(acl) for acl in as_acls(acls)}

    def attempt(acls: Collection[Acl], deadline: int) -> Waits[dict[Acl, None | KafkaError]]:
        answer = yield from calls.ask(
            Ask(CreateAclsRequest(creations=[known[acl] for acl in acls])), deadline
        )
        return {
            acl: refusal(result.error_code, acl, result.error_message) if result.error_code else None
            for acl, result in zip(acls, answer.results, strict=False)
        }

    return calls.settle(known, attempt, deadline)


@operation
def delete_acls(
    calls: Calls, deadline: int, filters: AclFilter | Acl | Iterable[AclFilter | Acl]
) -> Waits[Outcomes[AclFilter, list[Acl]]]:
    """Remove access rules, given as rules or as filters that match them; one or several.

    Returns:
        The rules that each filter matched and removed.

    Raises:
        BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
    """
    known = {each: _filter(DeleteAclsFilter, each) for each in as_filters(filters)}

    def attempt(
        filters: Collection[AclFilter], deadline: int
    ) -> Waits[dict[AclFilter, list[Acl] | KafkaError]]:
        answer = yield from calls.ask(
            Ask(DeleteAclsRequest(filters=[known[each] for each in filters])), deadline
        )
        found: dict[AclFilter, list[Acl] | KafkaError] = {}
        for each, result in zip(filters, answer.filter_results, strict=False):
            refused = next((acl for acl in result.matching_acls if acl.error_code), None)
            if result.error_code:
                found[each] = refusal(result.error_code, each, result.error_message)
            elif refused is not None:
                found[each] = refusal(refused.error_code, _deleted(refused), refused.error_message)
            else:
                found[each] = sorted(map(_deleted, result.matching_acls), key=_order)
        return found

    return calls.settle(known, attempt, deadline)


def _number(words: dict[str, int], field: str, word: str) -> int:
    try:
        return words[word.lower()]
    except (KeyError, AttributeError):
        raise ValueError(f"{field} is one of {', '.join(words)}, not {word!r}") from None


def _word(words: dict[str, int], number: int) -> str:
    return next((word for word, each in words.items() if each == number), _UNKNOWN)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=_number(_RESOURCES, "resource_type", acl.resource_type),
        resource_name=acl.resource_name,
        resource_pattern_type=_number(_PATTERNS, "pattern_type", acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=_number(_OPERATIONS, "operation", acl.operation),
        permission_type=_number(_PERMISSIONS, "permission", acl.permission),
    )


def _filter(message: type[F], wanted: AclFilter) -> F:
    return message(
        resource_type_filter=_number(_RESOURCES, "resource_type", wanted.resource_type),
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=_number(_PATTERNS, "pattern_type", wanted.pattern_type),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=_number(_OPERATIONS, "operation", wanted.operation),
        permission_type=_number(_PERMISSIONS, "permission", wanted.permission),
    )


def _described(resource: DescribeAclsResource, acl: AclDescription) -> Acl:
    return Acl(
        _word(_RESOURCES, resource.resource_type),
        resource.resource_name,
        acl.principal,
        _word(_OPERATIONS, acl.operation),
        _word(_PERMISSIONS, acl.permission_type),
        acl.host,
        _word(_PATTERNS, resource.pattern_type),
    )


def _deleted(acl: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        _word(_RESOURCES, acl.resource_type),
        acl.resource_name,
        acl.principal,
        _word(_OPERATIONS, acl.operation),
        _word(_PERMISSIONS, acl.permission_type),
        acl.host,
        _word(_PATTERNS, acl.pattern_type),
    )


def _order(acl: Acl) -> tuple[str, ...]:
    return (
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission,
    )  # fmt: skip


def as_acls(acls: Acl | Iterable[Acl]) -> list[Acl]:
    """Access rules; one or several."""
    return several(acls, (Acl,), "access rules are Acl values")


def as_filter(wanted: AclFilter | None) -> AclFilter:
    """A filter of access rules; None finds all."""
    check(wanted, (AclFilter, type(None)), "access rules are found by an AclFilter")
    return AclFilter() if wanted is None else wanted


def as_filters(filters: AclFilter | Acl | Iterable[AclFilter | Acl]) -> list[AclFilter]:
    """Filters of access rules; a rule stands for the filter that finds it alone."""
    given = several(filters, (AclFilter, Acl), "access rules are found by AclFilter values or rules")
    return [
        AclFilter(
            each.resource_type, each.resource_name, each.principal, each.operation, each.permission, each.host,
            each.pattern_type,
        )
        if isinstance(each, Acl)
        else each
        for each in given
    ]  # fmt: skip

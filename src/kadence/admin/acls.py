"""Access rules (ACLs): the messages, and Kafka's numbers for the words in `Acl` and `AclFilter`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from kadence.admin.calls import Ask, Calls, refusal
from kadence.admin.values import Acl, AclFilter, Outcomes
from kadence.errors import KafkaError
from kadence.protocol.create_acls import AclCreation, CreateAclsRequest
from kadence.protocol.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from kadence.protocol.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource

__all__ = ["create_acls", "delete_acls", "describe_acls"]

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


def describe_acls(calls: Calls, deadline: int, wanted: AclFilter) -> list[Acl]:
    """The rules that a filter finds, sorted."""

    def attempt(deadline: int) -> list[Acl]:
        answer = calls.ask(Ask(_filter(DescribeAclsRequest, wanted)), deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "ACLs", answer.error_message)
        return sorted(
            (_described(resource, acl) for resource in answer.resources for acl in resource.acls), key=_order
        )

    return calls.settle_one(attempt, deadline)


def create_acls(calls: Calls, deadline: int, acls: Iterable[Acl]) -> Outcomes[Acl, None]:
    """Add rules. One that is there already counts as added."""
    known = {acl: _creation(acl) for acl in acls}

    def attempt(acls: Collection[Acl], deadline: int) -> dict[Acl, None | KafkaError]:
        answer = calls.ask(Ask(CreateAclsRequest(creations=[known[acl] for acl in acls])), deadline)
        return {
            acl: refusal(result.error_code, acl, result.error_message) if result.error_code else None
            for acl, result in zip(acls, answer.results, strict=False)
        }

    return calls.settle(known, attempt, deadline)


def delete_acls(calls: Calls, deadline: int, filters: Iterable[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
    """Remove the rules that each filter finds."""
    known = {each: _filter(DeleteAclsFilter, each) for each in filters}

    def attempt(filters: Collection[AclFilter], deadline: int) -> dict[AclFilter, list[Acl] | KafkaError]:
        answer = calls.ask(Ask(DeleteAclsRequest(filters=[known[each] for each in filters])), deadline)
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

"""Every API in every version that our broker announces, and what comes before and beside requests: as real Kafka."""

from __future__ import annotations

import struct

import pytest
from tests.interop.fields import Scenario, Talk, assert_same
from tests.protocol.real_requests import REQUEST_FOR, Ground, versions

from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.create_acls import AclCreation, CreateAclsRequest
from kadence.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kadence.protocol.describe_acls import DescribeAclsRequest
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest
from kadence.protocol.sasl_handshake import SaslHandshakeRequest
from kadence.records import encode_batch
from kadence_broker.handlers import HANDLERS
from kadence_testing.kafka import Kafka

WITHOUT = {
    "ApiVersionsRequest": (
        "api_keys",
        "supported_features",
        "finalized_features",
        "finalized_features_epoch",
    ),
    "CreateTopicsRequest": ("topic_id",),
    "DescribeLogDirsRequest": ("total_bytes", "usable_bytes"),
    "ListTransactionsRequest": ("transaction_states",),
    "WriteTxnMarkersRequest": ("producer_id",),
    "ListConfigResourcesRequest": ("config_resources",),
}
"""What differs on purpose (docs/broker.md), or is of others that use the broker."""
OF_SHARE_GROUPS = frozenset((*range(76, 80), *range(90, 93)))
"""What these answer depends on whether the coordinator and the leader have begun with the partition."""


def every_version(talk: Talk) -> None:
    topic = talk.topic(2)
    group = talk.group()
    talk.transactional_id()
    ground = Ground(topic, talk.topic_id(topic), group, encode_batch([(1_000, b"k", b"v", ())]))
    for key, handler in sorted(HANDLERS.items()):
        for version in versions(handler.request) if key not in OF_SHARE_GROUPS else ():
            request = REQUEST_FOR[handler.request](version, ground)
            name = type(request).__name__
            talk.ask(request, version, without=WITHOUT.get(name, ()), mine=True)
            assert key == request.API_KEY


def api_versions(talk: Talk) -> None:
    for version in versions(ApiVersionsRequest):
        talk.ask(ApiVersionsRequest("kadence", "1"), version, without=WITHOUT["ApiVersionsRequest"])
    for version in (3, versions(ApiVersionsRequest)[-1]):
        for strange in ("", "a b", "-a", "a-", "ä", "a_", "a_b", "A.", ".", "a/b", "a\n", "1+2"):
            talk.ask(ApiVersionsRequest(strange, "1.0"), version)
            talk.ask(ApiVersionsRequest("a", strange), version)
        for usual in ("a" * 300, "9", "a.b-c.D", "a--b"):
            talk.ask(ApiVersionsRequest(usual, "1.0"), version, without=WITHOUT["ApiVersionsRequest"])
            talk.ask(ApiVersionsRequest("a", usual), version, without=WITHOUT["ApiVersionsRequest"])


def nodes_that_are_meant(talk: Talk) -> None:
    """KIP-1242: whoever is not the node of the cluster that the client means says so."""
    found = talk.wire.call(MetadataRequest([]))
    for cluster_id in (found.cluster_id, "another", "", None):
        for node_id in (found.brokers[0].node_id, 99, -1):
            request = ApiVersionsRequest("a", "1", cluster_id, node_id)
            answer = talk.wire.call(request, versions(ApiVersionsRequest)[-1])
            is_right = cluster_id == found.cluster_id
            talk.note(
                f"the right cluster: {is_right}, {cluster_id is None}, node {node_id > 0}", answer.error_code
            )


def versions_that_nobody_has(talk: Talk) -> None:
    """Who asks in a version that was not offered loses the connection; ApiVersions alone is answered."""
    frame = registry.encode_request(MetadataRequest([]), 12, 1, "wire")
    for key, version in ((3, 99), (3, -1), (99, 0), (-1, 0), (0, 2), (1, 3), (4, 0), (24, 9)):
        changed = struct.pack(">hh", key, version) + frame[4:]
        raw(talk, f"key {key} version {version}", changed)
    asked = registry.encode_request(ApiVersionsRequest("a", "1"), 4, 1, "wire")
    for version in (6, 99, -1):
        raw(talk, f"ApiVersions {version}", struct.pack(">hh", 18, version) + asked[4:])


def odd_frames(talk: Talk) -> None:
    good = registry.encode_request(MetadataRequest([]), 12, 1, "wire")
    old = registry.encode_request(MetadataRequest([]), 5, 1, "wire")
    for name, frame in (
        ("empty", b""), ("a byte", b"\0"), ("a header cut off", good[:6]), ("a body cut off", good[:-1]),
        ("more behind it", good + b"\0"), ("an old one with more behind it", old + b"\0\0\0"),
        ("a client id too long", good[:8] + b"\x7f\xff" + good[10:]),
        ("a negative client id", good[:8] + b"\xff\xfe" + good[10:]),
        ("no client id", good[:8] + b"\xff\xff" + good[14:]),
        ("an array too long", old[:-5] + b"\x7f\xff\xff\xff" + old[-1:]),
    ):  # fmt: skip
        raw(talk, name, frame)


def raw(talk: Talk, name: str, frame: bytes) -> None:
    """Send bytes; what matters is whether there is an answer, and its error in the case of ApiVersions."""
    wire = talk.connect()
    wire.send_frame(frame)
    try:
        answer = wire.receive_frame()
        # The beginning of the body of an ApiVersions: the error code.
        told = f"answered, {answer[4:6].hex()}" if name.startswith("ApiVersions") else "answered"
    except ConnectionError:
        told = "the connection ended"
    talk.note(name, told)


def logins_without_need(talk: Talk) -> None:
    """A listener in plain text takes no login."""
    for version in range(2):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "nonsense", ""):
            talk.ask(SaslHandshakeRequest(mechanism), version)
    for version in range(3):
        talk.ask(SaslAuthenticateRequest(b"\0user\0password"), version)
        talk.ask(SaslAuthenticateRequest(b""), version)
    talk.ask(
        MetadataRequest([MetadataRequestTopic(name="no-such-topic")], allow_auto_topic_creation=False), 12
    )


def access_rules(talk: Talk) -> None:
    """Neither has an authorizer."""
    for version in range(1, 4):
        for kind, pattern, operation, permission in (
            (1, 1, 1, 1), (2, 3, 3, 3), (2, 4, 3, 2), (3, 3, 3, 3), (4, 3, 12, 3), (99, 3, 3, 3), (2, 99, 3, 3),
            (2, 3, 99, 3), (2, 3, 3, 99), (2, 2, 3, 3),
        ):  # fmt: skip
            name = "kafka-cluster" if kind == 4 else "t"
            talk.ask(DescribeAclsRequest(kind, name, pattern, "User:u", "*", operation, permission), version)
            talk.ask(
                CreateAclsRequest([AclCreation(kind, name, pattern, "User:u", "*", operation, permission)]),
                version,
            )
            rule = DeleteAclsFilter(kind, name, pattern, "User:u", "*", operation, permission)
            talk.ask(DeleteAclsRequest([rule, rule]), version)
        talk.ask(CreateAclsRequest([]), version)
        talk.ask(DeleteAclsRequest([]), version)
        talk.ask(CreateAclsRequest([AclCreation(2, "t", 3, "nobody", "*", 3, 3)]), version)
        talk.ask(CreateAclsRequest([AclCreation(2, "", 3, "User:u", "", 3, 3)]), version)


SCENARIOS: list[Scenario] = [
    every_version, api_versions, nodes_that_are_meant, versions_that_nobody_has, odd_frames,
    logins_without_need, access_rules,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)

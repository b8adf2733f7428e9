"""``kadence cluster``: the brokers of a cluster, and which of them is the controller."""

from __future__ import annotations

import argparse
from typing import Any

from kadence_cli.common import (
    add_client_options,
    add_command,
    add_row_options,
    client_config,
    print_rows,
)
from kadence_cli.reach import reached

__all__ = ["add", "run"]

_DESCRIPTION = """\
Show the brokers of a cluster with addresses and racks. `controller` marks the
broker that clients send changes of topics to; with KRaft it may be any one."""

_EXAMPLES = """\
  kadence cluster -b broker1:9092 --json"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence cluster``."""
    parser = add_command(commands, "cluster", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    add_row_options(parser)
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    with reached(client_config(arguments), arguments) as admin:
        cluster = admin.describe_cluster()
    rows = [
        {
            "cluster": cluster.cluster_id,
            "broker": node.node_id,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "controller": cluster.controller is not None and node.node_id == cluster.controller.node_id,
        }
        for node in cluster.nodes
    ]
    print_rows(rows, as_json=arguments.json, wide=arguments.wide)
    return 0

"""Idle members of share groups beside idle consumers: each waits in its poll, and nothing comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness import children, peers, share
from harness.plan import Figures, Line, Options, Outcome, Plan
from harness.table import Goal, Table
from harness.timing import Patience, peak_rss_mb

if TYPE_CHECKING:
    from harness.ground import Ground

CONSUMERS = 20
TIMES = 7
"""The time of other rows: heartbeats come every 5 s."""
WAIT = 5.0
MOST = 1.2


def _idle(plan: Plan, make: Callable[[Plan], Any]) -> Figures:
    """Each is alone in its group, and polls on a thread of its own: what is spent is the clients'."""
    consumers = [
        make(Plan(plan.bootstrap, plan.topic, f"{plan.group}-{number}")) for number in range(plan.count)
    ]
    done = threading.Event()

    def poll(consumer: Any) -> None:
        while not done.is_set():
            consumer.poll(WAIT)

    threads = [threading.Thread(target=poll, args=(each,)) for each in consumers]
    for thread in threads:
        thread.start()
    patience = Patience(plan)
    while not all(consumer.assignment() for consumer in consumers):
        patience.check()
        time.sleep(0.1)
    time.sleep(min(3.0, plan.seconds))
    asked = _requests(consumers)
    burnt, began = time.process_time(), time.perf_counter()
    time.sleep(plan.seconds)
    seconds = time.perf_counter() - began
    share_of_a_processor = (time.process_time() - burnt) / seconds * 100
    requests = (_requests(consumers) - asked) / seconds
    done.set()
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()
    each = len(consumers)
    return {"cpu": share_of_a_processor / each, "requests": requests / each, "rss": peak_rss_mb() / each}


def _requests(consumers: list[Any]) -> float:
    """How many all have sent to anybody."""
    return sum(
        float(value)
        for consumer in consumers
        for metric, value in consumer.metrics().items()
        if metric.name == "request-total" and "node" not in metric.group
    )


LINES = {
    "kadence-idle-share": Line("Kadence, `ShareConsumer`", lambda plan: _idle(plan, share.kadence)),
    "kadence-idle-consumer": Line("Kadence, `Consumer`", lambda plan: _idle(plan, peers.kadence)),
}
HEADINGS = ("client", "CPU % each", "requests/s each", "peak RSS MB each")


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    """The cheapest of the rounds, which take turns."""
    topic = ground.empty("share-idle", 1)
    kept: dict[str, Outcome] = {}
    for turn in range(options.rounds):
        for name in (name for name in LINES if options.wants(name)):
            group = f"bench-share-{name}-{turn}"
            plan = Plan(ground.bootstrap, topic, group, count=CONSUMERS, seconds=TIMES * options.seconds)
            outcome = children.run("share", name, LINES[name], plan)
            print(f"  share {name}: {outcome}", flush=True)
            best = kept.get(name)
            if not isinstance(best, dict) or (isinstance(outcome, dict) and outcome["cpu"] < best["cpu"]):
                kept[name] = outcome
    lines, failures = [], []
    for name, each in kept.items():
        if isinstance(each, str):
            lines.append((LINES[name].title, *["–"] * 3))
            failures.append(f"{LINES[name].title}: {each}")
        else:
            figures = (f"{each['cpu']:.3f}", f"{each['requests']:.2f}", f"{each['rss']:.1f}")
            lines.append((LINES[name].title, *figures))
    table = Table(
        f"{CONSUMERS} idle members, each in its poll and alone in its group", HEADINGS, lines, (), failures
    )
    return [table], [_goal("an idle queue's CPU", kept, "cpu"), _goal("… and requests", kept, "requests")]


def _goal(what: str, kept: dict[str, Outcome], figure: str) -> Goal:
    promised = f"≤ {MOST:g} × an idle consumer of ours"
    ours, theirs = kept.get("kadence-idle-share"), kept.get("kadence-idle-consumer")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Goal(what, promised, "–")
    ratio = ours[figure] / theirs[figure]
    return Goal(what, promised, f"{ratio:.2f} ×", ratio <= MOST)

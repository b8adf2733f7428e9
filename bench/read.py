"""A topic as a pandas frame: `kadence.read`, and the same by hand with confluent-kafka and pandas, in one run.

    python bench/read.py [--records 1000000] [--runs 3] [--servers HOST:PORT]

Each reading is a process of its own, and they take turns; the best of each counts, by the clock and by its processor
time. Importing is not counted. All make the same frame, and its sums are compared. At the end what odd values among
JSON cost: the processor time of the thread that reads. Without ``--servers`` the embedded broker serves, in a process
of its own; with it the topics stay where they were made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

from kadence.errors import ConfigError
from kadence_testing.kafka import free_ports

PARTITIONS = 8
CITIES = ("Oslo", "Lima", "Pune", "Kyiv")


def as_table(servers: str, topic: str, form: str) -> Any:
    import kadence

    if form == "json":
        table = kadence.read(
            topic, since="-1h", columns=["timestamp", "value"], value="json", bootstrap_servers=servers
        ).flatten()
        return table.rename_columns([name.removeprefix("value.") for name in table.column_names])
    columns = ["key", "value", "partition", "offset", "timestamp"]
    return kadence.read(topic, since="-1h", columns=columns, bootstrap_servers=servers)


def as_frame(servers: str, topic: str, form: str) -> Any:
    return as_table(servers, topic, form).to_pandas()


def as_quick_frame(servers: str, topic: str, form: str) -> Any:
    # Without a look whether two rows have the same object.
    return as_table(servers, topic, form).to_pandas(deduplicate_objects=False)


def with_confluent(servers: str, topic: str, form: str) -> Any:
    import confluent_kafka
    import pandas as pd

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    numbers = consumer.list_topics(topic).topics[topic].partitions
    since = int((time.time() - 3600) * 1000)
    wanted = [confluent_kafka.TopicPartition(topic, number, since) for number in numbers]
    starts = consumer.offsets_for_times(wanted)
    ends = {part.partition: consumer.get_watermark_offsets(part)[1] for part in starts}
    left = {part.partition for part in starts if 0 <= part.offset < ends[part.partition]}
    consumer.assign([part for part in starts if part.partition in left])
    rows: list[tuple[Any, ...]] = []
    while left:
        messages: list[Any] = consumer.consume(10_000, 1.0)
        for message in messages:
            number, offset = message.partition(), message.offset()
            if offset < ends[number]:
                rows.append((message.key(), message.value(), number, offset, message.timestamp()[1]))
            if offset + 1 >= ends[number]:
                left.discard(number)
    consumer.close()
    frame = pd.DataFrame(rows, columns=["key", "value", "partition", "offset", "timestamp"])
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
    if form == "json":
        documents = pd.DataFrame([json.loads(value) for value in frame["value"]])
        return pd.concat([frame[["timestamp"]], documents], axis=1)
    return frame


READERS = {
    "read(), an Arrow table": as_table,
    "read().to_pandas()": as_frame,
    "…(deduplicate_objects=False)": as_quick_frame,
    "confluent-kafka and pandas": with_confluent,
}


def measured(reader: str, servers: str, topic: str, form: str) -> dict[str, Any]:
    """One reading, in this process."""
    # What is imported is no part of what is measured.
    import confluent_kafka  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.json  # noqa: F401

    import kadence.consumer.consumer
    import kadence.reading
    import kadence.records.arrow

    with contextlib.suppress(ConfigError):
        # It loads what else it needs before it knows where the brokers are.
        kadence.Consumer()
    at, worked = time.perf_counter(), time.process_time()
    frame = READERS[reader](servers, topic, form)
    seconds, processor = time.perf_counter() - at, time.process_time() - worked
    frame = frame.to_pandas() if reader == "read(), an Arrow table" else frame
    total = frame["amount"].sum() if form == "json" else int(frame["value"].map(len).sum())
    return {"rows": len(frame), "sum": float(total), "seconds": seconds, "processor": processor}


def fill(servers: str, topic: str, records: int) -> None:
    import pyarrow as pa

    from kadence import Admin, NewTopic, Producer

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for start in range(0, records, 50_000):
            numbers = range(start, min(start + 50_000, records))
            values = [
                json.dumps(
                    {"id": n, "customer": f"customer-{n % 997}", "city": CITIES[n % 4], "amount": n % 500 / 4}
                )
                for n in numbers
            ]
            table = pa.table(
                {"value": values, "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32())}
            )
            producer.send_arrow(table, topic).result(60)


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "kadence", "broker", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as broker:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            broker.terminate()


def compared(servers: str, records: int, runs: int) -> None:
    topic = f"bench-read-{uuid.uuid4().hex[:8]}"
    fill(servers, topic, records)
    for form in ("bytes", "json"):
        found: dict[str, list[dict[str, Any]]] = {reader: [] for reader in READERS}
        for _ in range(runs):
            for reader, results in found.items():
                command = [sys.executable, __file__, "--one", reader, "--servers", servers, "--topic", topic]
                done = subprocess.run([*command, "--form", form], capture_output=True, check=True)
                results.append(json.loads(done.stdout))
        sums = {(each["rows"], each["sum"]) for results in found.values() for each in results}
        assert len(sums) == 1, f"the frames differ: {sums}"
        assert sums.pop()[0] == records
        print(f"\nvalues as {form}, {records:,} records, best of {runs}")
        least = {
            r: {k: min(e[k] for e in all_) for k in ("seconds", "processor")} for r, all_ in found.items()
        }
        slow = least["confluent-kafka and pandas"]
        for reader, best in least.items():
            print(
                f"  {reader:30} {best['seconds']:7.2f} s  {records / best['seconds'] / 1000:7,.0f} k records/s  "
                f"{slow['seconds'] / best['seconds']:5.1f} x   processor {best['processor']:6.2f} s "
                f"({slow['processor'] / best['processor']:.1f} x)"
            )


def odd_values(servers: str, records: int, runs: int) -> None:
    """Topics whose records have 19 fields, and in some of which 2 % of the values are odd."""
    import pyarrow as pa

    import kadence
    from kadence import Admin, NewTopic, Producer

    kinds = {"clean": None, "2 % texts among numbers": '"NA"', "2 % no JSON": "{"}
    print(f"\nvalues as json, {records:,} records of 19 fields, the reading thread, best of {runs}")
    clean = 0.0
    for number, (kind, odd) in enumerate(kinds.items()):
        topic = f"bench-odd-{number}-{uuid.uuid4().hex[:8]}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS)])
        with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
            for start in range(0, records, 50_000):
                values = [
                    document(n, odd if n % 50 == 7 else None)
                    for n in range(start, min(start + 50_000, records))
                ]
                producer.send_arrow(pa.table({"value": values}), topic).result(60)
        took = []
        for _ in range(runs):
            at = time.thread_time()
            table = kadence.read(
                topic, value="json", errors="null", progress=False, bootstrap_servers=servers
            )
            took.append((time.thread_time() - at) / records * 1e6)
            assert table.num_rows == records
        clean = clean or min(took)
        print(f"  {kind:30} {min(took):5.2f} µs a record  {min(took) / clean:5.2f} x")


def document(number: int, odd: str | None) -> str:
    """JSON of 19 fields: whole numbers, texts and others; odd: what stands in place of one of them, or of all."""
    kinds = (number % 1000, f'"text-{number % 97}"', number % 500 / 4)
    fields = [f'"f{place}": {kinds[place % 3]}' for place in range(19)]
    if odd == "{":
        return odd
    return "{" + ", ".join(fields if odd is None else [f'"f0": {odd}', *fields[1:]]) + "}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers")
    parser.add_argument("--topic")
    parser.add_argument("--form")
    parser.add_argument("--one", choices=READERS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.servers, given.topic, given.form)))
    elif given.servers:
        compared(given.servers, given.records, given.runs)
        odd_values(given.servers, given.records // 10, given.runs)
    else:
        with embedded() as servers:
            compared(servers, given.records, given.runs)
            odd_values(servers, given.records // 10, given.runs)


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.0), Apache Kafka 4.3.1.
#
# Behaviour: one record for each of n topics costs a producer processor time that grows faster than with n: four times
# the topics, ten times the time. Each topic exists, and has one partition.
#
# What a good engineer would have guessed: what a topic costs does not depend on how many others there are.
#
# Only the processor time of the producer's process counts, so a busy machine changes little. SMALL and LARGE are the
# numbers of topics.
#
# Needs Java 17, Maven, Python with venv (or PYTHON=...). Takes four minutes. Exits with 0 when it sees the behaviour, 1
# when it has changed, 2 when it could not tell.
#
# Seen:
#   100 topics: 0.01 s of processor time, 1.1 s
#   1000 topics: 0.15 s of processor time, 5.3 s
#   4000 topics: 1.58 s of processor time, 7.0 s
#   4 times the topics, 10.6 times the processor time
#   SEEN
set -euo pipefail

small=${SMALL:-1000} large=${LARGE:-4000}
work=$(mktemp -d)
broker=
driver=
clean_up() {
    {
        [ -z "$driver" ] || kill -KILL "$driver" || true
        [ -z "$broker" ] || kill -KILL "$broker" || true
        wait $driver $broker || true
    } 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 || exit 2

cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" >maven.log 2>&1 || {
    cat maven.log
    exit 2
}

read -r port controller < <(venv/bin/python -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))')
cat >server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/data
log.index.size.max.bytes=4096
offsets.topic.replication.factor=1
auto.create.topics.enable=false
broker.session.timeout.ms=60000
PROPERTIES
kafka=(java -cp "$work/jars/*" -Xmx768m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
"${kafka[@]}" kafka.tools.StorageTool format -t ZmluZGluZ3MtMDAwMDAwMQ -c server.properties >format.log 2>&1 || {
    cat format.log
    exit 2
}
"${kafka[@]}" kafka.Kafka server.properties >server.log 2>&1 </dev/null &
broker=$!
until grep -q "Kafka Server started" server.log; do
    kill -0 "$broker" 2>/dev/null || { tail -30 server.log; exit 2; }
    sleep 0.2
done

cat >topics.py <<'PYTHON'
import sys
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

servers, small, large = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LIMIT = 900


def no_verdict(why):
    print(f"NO VERDICT: {why}")
    raise SystemExit(2)


admin = AdminClient({"bootstrap.servers": servers})
for first in range(0, large, 500):
    names = [f"t{number}" for number in range(first, min(first + 500, large))]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=120).values():
        future.result()
while len(admin.list_topics(timeout=60).topics) < large:  # the broker has them a little later
    time.sleep(0.5)
del admin


def send(count):
    """The processor time (s) and time (s) in which one record for each of so many topics is acknowledged."""
    done, errors = 0, []

    def delivered(error, _):
        nonlocal done
        done += 1
        if error is not None:
            errors.append(error)

    producer = confluent_kafka.Producer({
        "bootstrap.servers": servers, "message.timeout.ms": LIMIT * 1000, "log_level": 0, "linger.ms": 100,
    })
    began, spent = time.monotonic(), time.process_time()
    for number in range(count):
        producer.produce(f"t{number}", b"x", on_delivery=delivered)
        producer.poll(0)
    producer.flush(LIMIT)
    if done != count or errors:
        no_verdict(f"{done - len(errors)} of {count} records were written within {LIMIT} s: {errors[:1]}")
    took, spent = time.monotonic() - began, time.process_time() - spent
    print(f"{count} topics: {spent:.2f} s of processor time, {took:.1f} s", flush=True)
    return spent


send(100)  # whatever is needed once
least = [send(count) for count in (small, large)]
ratio = least[1] / least[0]
print(f"{large / small:g} times the topics, {ratio:.1f} times the processor time")
if ratio > 2 * large / small:
    print("SEEN")
else:
    print("CHANGED")
    raise SystemExit(1)
PYTHON
# In the background, so that a signal ends this script at once.
venv/bin/python topics.py "127.0.0.1:$port" "$small" "$large" &
driver=$!
wait "$driver"

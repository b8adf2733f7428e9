#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.0) with group.protocol=consumer, Apache Kafka 4.3.1.
#
# Behaviour: a coordinator that pauses for a little longer than two heartbeat intervals (here 3 s of SIGSTOP with
# group.consumer.heartbeat.interval.ms=1000) can stop a group's rebalance for the rebalance timeout, which is
# max.poll.interval.ms, five minutes by default. A second member joins, and the coordinator means to tell the first to
# give up half of its partitions. librdkafka gives each ConsumerGroupHeartbeat one heartbeat interval; the coordinator
# answers after the pause, and the answer goes to a connection that is closed. From then on the first member sends short
# heartbeats, without its subscription and its partitions. The coordinator repeats an assignment only in answer to a
# full heartbeat, so it does not tell the first member again, and waits for it. The second member owns nothing until
# the coordinator throws the first one out.
#
# What a good engineer would have guessed: a heartbeat whose answer was lost is followed by a full one, in whose answer
# the coordinator repeats the assignment, and the members share the partitions a heartbeat or two after the pause. That
# is what Java's consumer does.
#
# Controls: no pause; a pause of 0.2 s, shorter than the interval, so that no answer is lost; the long pause with Java's
# consumer as the first member, which here gives up its requests as early, and says that it gave up a heartbeat. The
# short interval only saves time: with Kafka's default of 5 s and a pause of 12 s the outcome was the same.
#
# Needs Java 17, Maven, Python with venv (or PYTHON=...), pkill. Takes two minutes. Exits with 0 when it sees the
# behaviour, 1 when it has changed, 2 when it could not tell.
#
# Seen:
#   no-pause (first member: Confluent, broker paused 0 s): shared after 1.1 s
#       first owns [0, 1]; the coordinator: owns [0, 1], shall own [0, 1]
#       second owns [2, 3]; the coordinator: owns [2, 3], shall own [2, 3]
#   short-pause (first member: Confluent, broker paused 0.2 s): shared after 0.8 s
#       first owns [0, 1]; the coordinator: owns [0, 1], shall own [0, 1]
#       second owns [2, 3]; the coordinator: owns [2, 3], shall own [2, 3]
#   java (first member: Java, broker paused 3 s): shared after 2.3 s
#       first the coordinator: owns [0, 1], shall own [0, 1]
#       second owns [2, 3]; the coordinator: owns [2, 3], shall own [2, 3]
#   long-pause-1 (first member: Confluent, broker paused 3 s): not shared within 20 s
#       first owns [0, 1, 2, 3]; the coordinator: owns [0, 1, 2, 3], shall own [0, 1]
#       second owns []; the coordinator: owns [], shall own [2, 3]
#       shared at last, 45 s after the pause (rebalance timeout: 45 s)
#   SEEN: the first member was not told again
set -euo pipefail

work=$(mktemp -d)
broker=
driver=
clean_up() {
    {
        [ -z "$driver" ] || pkill -KILL -P "$driver" || true
        kill -KILL $driver $broker || true
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
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
broker.session.timeout.ms=60000
group.consumer.min.heartbeat.interval.ms=1000
group.consumer.heartbeat.interval.ms=1000
group.consumer.session.timeout.ms=60000
PROPERTIES
kafka=(java -cp "$work/jars/*" -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
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

cat >groups.py <<'PYTHON'
import os
import signal
import subprocess
import sys
import threading
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

servers, broker, jars = sys.argv[1], int(sys.argv[2]), sys.argv[3]
HEARTBEAT, LONG, SHORT, REBALANCE_TIMEOUT, WATCH = 1, 3, 0.2, 45, 20  # seconds
admin = AdminClient({"bootstrap.servers": servers})


class Confluent:
    def __init__(self, name, group):
        self.owned, self.over = set(), threading.Event()
        self.consumer = confluent_kafka.Consumer({
            "bootstrap.servers": servers, "client.id": name, "group.id": group, "group.protocol": "consumer",
            "max.poll.interval.ms": REBALANCE_TIMEOUT * 1000, "log_level": 0,
        })
        self.consumer.subscribe([group], on_assign=self.gain, on_revoke=self.lose, on_lost=self.lose)
        self.thread = threading.Thread(target=self.poll)
        self.thread.start()

    def gain(self, _, partitions):
        self.owned |= {each.partition for each in partitions}

    def lose(self, _, partitions):
        self.owned -= {each.partition for each in partitions}

    def poll(self):
        while not self.over.is_set():
            self.consumer.poll(0.05)

    def close(self):
        self.over.set()
        self.thread.join()
        self.consumer.close()


class Java:
    """Java's consumer. It waits 30 s for an answer by default; here it gives up as early as the other."""

    owned = None

    def __init__(self, name, group):
        settings = {
            "client.id": name, "group.protocol": "consumer", "max.poll.interval.ms": REBALANCE_TIMEOUT * 1000,
            "request.timeout.ms": HEARTBEAT * 1000, "default.api.timeout.ms": 60000,
        }
        command = ["java", "-cp", f"{jars}/*", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                   "org.apache.kafka.tools.consumer.ConsoleConsumer",
                   "--bootstrap-server", servers, "--topic", group, "--group", group]
        for each in settings.items():
            command += ["--command-property", "%s=%s" % each]
        self.log = open(f"{name}.log", "w")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def described(group):
    """The (current, target) partitions of a group's members, by client.id."""
    members = {}
    try:
        told = admin.describe_consumer_groups([group])[group].result()
    except confluent_kafka.KafkaException:  # there is no such group yet, or its coordinator loads it
        return members
    for each in told.members:
        members[each.client_id] = tuple(
            sorted(partition.partition for partition in of.topic_partitions) if of else []
            for of in (each.assignment, each.target_assignment)
        )
    return members


def no_verdict(why):
    print(f"NO VERDICT: {why}")
    raise SystemExit(2)


def wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            no_verdict("waited in vain for a group")
        time.sleep(0.01)


def current(group, name):
    return described(group).get(name, ([], []))[0]


def trial(group, first_kind, pause):
    """Whether the second member that joins gets its two of four partitions within WATCH seconds."""
    admin.create_topics([NewTopic(group, 4, 1)])[group].result()
    members = [first_kind("first", group)]
    try:
        wait(lambda: len(current(group, "first")) == 4)
        time.sleep(2 * HEARTBEAT)  # the first has acknowledged them
        members.append(Confluent("second", group))
        if pause:
            # The coordinator knows the second; with its next heartbeat the first shall be told to give up two.
            wait(lambda: len(described(group)) == 2)
            os.kill(broker, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(broker, signal.SIGCONT)
        began = time.monotonic()
        while len(members[1].owned) != 2 and time.monotonic() < began + WATCH:
            time.sleep(0.05)
        took = time.monotonic() - began
        told = described(group)
        shared = len(members[1].owned) == 2
        print(f"{group} (first member: {first_kind.__name__}, broker paused {pause} s): "
              + (f"shared after {took:.1f} s" if shared else f"not shared within {WATCH} s"))
        for each, member in zip(("first", "second"), members):
            has, should = told.get(each, ("?", "?"))
            own = "" if member.owned is None else f"owns {sorted(member.owned)}; "
            print(f"    {each} {own}the coordinator: owns {has}, shall own {should}", flush=True)
        if shared:
            return True
        # Not some other trouble: the coordinator waits for the first to give up what it was told to.
        if len(members[0].owned) != 4 or [len(each) for each in told.get("first", ())] != [4, 2]:
            no_verdict("something else keeps the second member waiting")
        wait(lambda: len(members[1].owned) == 2)
        print(f"    shared at last, {time.monotonic() - began:.0f} s after the pause "
              f"(rebalance timeout: {REBALANCE_TIMEOUT} s)", flush=True)
        return False
    finally:
        for each in members:
            each.close()


if not trial("no-pause", Confluent, 0) or not trial("short-pause", Confluent, SHORT):
    no_verdict("the members do not share the partitions where no answer is lost")
if not trial("java", Java, LONG):
    no_verdict("Java's consumer did not recover either")
if "Cancelled in-flight CONSUMER_GROUP_HEARTBEAT" not in open("first.log").read():
    no_verdict("Java's consumer lost no answer")
for number in range(1, 4):  # the pause may come too late, a few milliseconds after the heartbeat
    if not trial(f"long-pause-{number}", Confluent, LONG):
        print("SEEN: the first member was not told again")
        raise SystemExit(0)
print("CHANGED: the members shared the partitions soon after each pause")
raise SystemExit(1)
PYTHON
# In the background, so that a signal ends this script at once.
venv/bin/python groups.py "127.0.0.1:$port" "$broker" "$work/jars" &
driver=$!
wait "$driver"

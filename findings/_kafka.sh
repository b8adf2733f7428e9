# Sourced by findings: start_kafka VERSION DIRECTORY [SETTING=VALUE ...]
#
# Downloads Apache Kafka's jars from Maven Central, starts one node on a free port of 127.0.0.1 and waits for it. Sets
# servers, broker (its process) and kafka (the Java command with its jars). Exits with 2 where that cannot be done.
start_kafka() {
    local version=$1 work=$2 port controller
    shift 2
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
    (cd "$work" && mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars") \
        >"$work/maven.log" 2>&1 || { cat "$work/maven.log"; exit 2; }
    read -r port controller < <("${PYTHON:-python3}" -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))')
    {
        cat <<PROPERTIES
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
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
PROPERTIES
        printf '%s\n' "$@"
    } >"$work/server.properties"
    kafka=(java -cp "$work/jars/*" -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
    "${kafka[@]}" kafka.tools.StorageTool format -t ZmluZGluZ3MtMDAwMDAwMQ -c "$work/server.properties" \
        >"$work/format.log" 2>&1 || { cat "$work/format.log"; exit 2; }
    "${kafka[@]}" kafka.Kafka "$work/server.properties" >"$work/server.log" 2>&1 </dev/null &
    broker=$!
    servers=127.0.0.1:$port
    until grep -qs "Kafka Server started" "$work/server.log"; do
        kill -0 "$broker" 2>/dev/null || { tail -30 "$work/server.log"; exit 2; }
        sleep 0.2
    done
}

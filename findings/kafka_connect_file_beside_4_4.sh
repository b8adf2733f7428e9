#!/usr/bin/env bash
# Apache Kafka 4.4.0: its Connect cannot use the file connectors of 4.3.1, and there are none of 4.4.0.
#
# Guess: a connector that was built for Connect 4.3.1 runs in Connect 4.4.0, a minor release; and Kafka's own file
#        connectors are published with each release, as before.
# Seen: org.apache.kafka:connect-file is on Maven Central up to 4.3.1. Its version(), which Connect calls for each plugin,
#       asks AppInfoParser, as connectors elsewhere do after its example. Kafka 4.4.0 has moved that class to
#       org.apache.kafka.common.utils.internals, so the call ends with NoClassDefFoundError. On 4.3.1 it answers.
# Who meets it: whoever updates a Connect worker to 4.4.0 and keeps its connectors. Look for AppInfoParser in their jars
#       before (unzip -p JAR | grep -a common/utils/AppInfoParser), and update those that have it.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   connect-file 4.4.0: not on Maven Central
#   connect-file 4.3.1 in Connect 4.3.1: version 4.3.1
#   connect-file 4.3.1 in Connect 4.4.0: java.lang.NoClassDefFoundError: org/apache/kafka/common/utils/AppInfoParser
#   SEEN
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Downloads Connect and the file connectors into a folder: jars RUNTIME-VERSION CONNECTOR-VERSION
jars() {
    mkdir -p "$work/$1-$2"
    cat >"$work/$1-$2/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>connect</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>$1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>$2</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
    (cd "$work/$1-$2" && mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars) \
        >"$work/$1-$2/maven.log" 2>&1
}

cat >"$work/Version.java" <<'JAVA'
import org.apache.kafka.connect.file.FileStreamSourceConnector;

public class Version {
    public static void main(String[] given) {
        try {
            System.out.println("version " + new FileStreamSourceConnector().version());
        } catch (LinkageError error) {
            System.out.println(error);
        }
    }
}
JAVA

for runtime in 4.3.1 4.4.0; do
    jars "$runtime" 4.3.1 || { cat "$work/$runtime-4.3.1/maven.log"; exit 2; }
done
if jars 4.4.0 4.4.0; then
    published="on Maven Central"
elif grep -qE "Could not find artifact org.apache.kafka:connect-file:jar:4.4.0|connect-file:jar:4.4.0 was not found" "$work/4.4.0-4.4.0/maven.log"; then
    published="not on Maven Central"
else
    cat "$work/4.4.0-4.4.0/maven.log"
    exit 2
fi
before=$(java -cp "$work/4.3.1-4.3.1/jars/*" "$work/Version.java")
after=$(java -cp "$work/4.4.0-4.3.1/jars/*" "$work/Version.java")
echo "connect-file 4.4.0: $published"
echo "connect-file 4.3.1 in Connect 4.3.1: $before"
echo "connect-file 4.3.1 in Connect 4.4.0: $after"
[ "$before" = "version 4.3.1" ] || exit 2
if [ "$published" = "not on Maven Central" ] && [[ $after == *NoClassDefFoundError*AppInfoParser* ]]; then
    echo SEEN
else
    echo changed
    exit 1
fi

#!/usr/bin/env bash
# Apache Kafka 4.4.0: a text header that passes through Connect comes out with other digits.
#
# Guess: Connect reads a header as a number to let transforms use it, and writes what it has read. A number with many digits
#       is read as a double or a decimal, as KAFKA-10439 did for whole numbers.
# Seen: SimpleHeaderConverter, which a worker uses unless told otherwise, reads a text with a point as float32, seven
#       digits, if its magnitude fits. "9999999999.99" is written as "1.0E10", "52.5200065" as "52.520008". "007" is
#       written as "7" and "1.10" as "1.1". Whole numbers beyond int64 do keep all digits.
# Who meets it: whoever copies topics with a connector and has amounts, coordinates, versions or numbers with leading zeros
#       in headers: neither the value nor the connector's log shows it. Set header.converter to StringConverter or
#       ByteArrayConverter.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   9999999999.99 -> 1.0E10 (FLOAT32)
#   52.5200065 -> 52.520008 (FLOAT32)
#   1.10 -> 1.1 (FLOAT32)
#   007 -> 7 (INT8)
#   12345678901234567890 -> 12345678901234567890 (BYTES)
#   v1.10 -> v1.10 (STRING)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>connect</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId><version>4.4.0</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >maven.log 2>&1 || { cat maven.log; exit 2; }

cat >Headers.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/** Reads headers and writes them again, as a sink and a source connector do. */
public class Headers {
    public static void main(String[] texts) throws Exception {
        try (SimpleHeaderConverter converter = new SimpleHeaderConverter()) {
            for (String text : texts) {
                SchemaAndValue read = converter.toConnectHeader("topic", "key", text.getBytes(StandardCharsets.UTF_8));
                byte[] written = converter.fromConnectHeader("topic", "key", read.schema(), read.value());
                String said = new String(written, StandardCharsets.UTF_8);
                System.out.println(text + " -> " + said + " (" + read.schema().type() + ")");
            }
        }
    }
}
JAVA
java -cp "jars/*" Headers.java 9999999999.99 52.5200065 1.10 007 12345678901234567890 v1.10 | tee seen || exit 2
sed -n 's/^#   \(.* -> \)/\1/p' "$here/kafka_connect_headers_lose_digits.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }

#!/usr/bin/env bash
# Avro 1.12.1 (Java) and fastavro 1.13.1: after a change of scale or unit one reads another value than the other.
#
# Guess: a reader's schema with another scale of a decimal, or another unit of a timestamp, is either refused or the value
#       is converted. Avro's specification lets decimals match only with equal scale and precision.
# Seen: Java's check calls each such pair COMPATIBLE and its reader takes the writer's bytes by the reader's type: 1.23 is
#       read as 0.0123, a time of 2026 as one of January 1970. fastavro takes them by the writer's type and keeps the value.
#       So two consumers of a topic, with the same schemas, hold amounts that differ by a hundred.
# Who meets it: whoever widens decimal(4,2) to decimal(6,4), or goes from millis to micros: the schema check passes, all old
#       records change for Java's readers. Use a new field for it.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   Java: decimal(4,2) 1.23 read as decimal(6,4): 0.0123, COMPATIBLE
#   Java: timestamp-millis 2026-01-01T00:00:00Z read as timestamp-micros: 1970-01-21T10:53:45.600Z, COMPATIBLE
#   Java: time-millis 10:00 read as time-micros: 00:00:36, COMPATIBLE
#   fastavro: decimal(4,2) read as decimal(6,4): 1.23
#   fastavro: timestamp-millis read as timestamp-micros: 2026-01-01 00:00:00+00:00
#   fastavro: time-millis read as time-micros: 10:00:00
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check fastavro==1.13.1 || exit 2
cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>avro</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.17</version></dependency>
</dependencies></project>
POM
mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >maven.log 2>&1 || { cat maven.log; exit 2; }

cat >Read.java <<'JAVA'
import java.io.FileOutputStream;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalTime;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

/** Writes a value by one schema into a file, reads it by another. */
public class Read {
    static final GenericData DATA = new GenericData();

    public static void main(String[] given) throws Exception {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        read("decimal(4,2)", "decimal(6,4)", "decimal", new BigDecimal("1.23"));
        read("timestamp-millis", "timestamp-micros", "timestamp", Instant.parse("2026-01-01T00:00:00Z"));
        read("time-millis", "time-micros", "time", LocalTime.of(10, 0));
    }

    static void read(String from, String to, String file, Object value) throws Exception {
        Schema writer = new Schema.Parser().parse(Files.readString(Path.of(file + ".old")));
        Schema reader = new Schema.Parser().parse(Files.readString(Path.of(file + ".new")));
        try (FileOutputStream out = new FileOutputStream(file + ".data")) {
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
            new GenericDatumWriter<Object>(writer, DATA).write(value, encoder);
            encoder.flush();
        }
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(Files.readAllBytes(Path.of(file + ".data")), null);
        Object read = new GenericDatumReader<Object>(writer, reader, DATA).read(null, decoder);
        var verdict = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType();
        System.out.println("Java: " + from + " " + value + " read as " + to + ": " + read + ", " + verdict);
    }
}
JAVA
cat >read.py <<'PY'
import json
from pathlib import Path

import fastavro

for said, name in (
    ("decimal(4,2) read as decimal(6,4)", "decimal"),
    ("timestamp-millis read as timestamp-micros", "timestamp"),
    ("time-millis read as time-micros", "time"),
):
    writer, reader = (json.loads(Path(f"{name}.{age}").read_text()) for age in ("old", "new"))
    with open(f"{name}.data", "rb") as data:
        value = fastavro.schemaless_reader(data, writer, reader)
    print(f"fastavro: {said}: {value.normalize() if name == 'decimal' else value}")
PY
logical() { printf '{"type": "%s", "logicalType": "%s"%s}' "$@" >"$name"; }
name=decimal.old logical bytes decimal ', "precision": 4, "scale": 2'
name=decimal.new logical bytes decimal ', "precision": 6, "scale": 4'
name=timestamp.old logical long timestamp-millis ''
name=timestamp.new logical long timestamp-micros ''
name=time.old logical int time-millis ''
name=time.new logical long time-micros ''
{ java -cp "jars/*" Read.java && venv/bin/python read.py; } | tee seen || exit 2
sed -n 's/^#   \(Java\|fastavro\): /\1: /p' "$here/avro_logical_types_by_reader.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }

#!/usr/bin/env bash
# fastavro 1.13.1: a union writes a value as its first type that could take it, and the rest of the value is lost.
#
# Guess: the branch is chosen by the value's type, as Avro's Java library does: a datetime goes to timestamp-millis and
#       not to date, an int to long and not to double, wherever they stand in the union.
# Seen: in [date, timestamp-millis] a datetime is written as its date; the time of day is gone. In [double, long] an int
#       is written as a double; 9007199254740993 comes back as 9007199254740992.0. Neither is refused. Avro 1.12.1 for Java
#       writes both into the second branch. With the branches the other way round fastavro keeps both.
# Who meets it: whoever writes a schema that Java programs made, such as a union of all types for a column of a change
#       log. confluent-kafka's AvroSerializer writes by fastavro. Order the union from narrow to wide.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   fastavro: [date, timestamp-millis] 2026-01-01 05:00:00+00:00 -> 2026-01-01
#   fastavro: [timestamp-millis, date] 2026-01-01 05:00:00+00:00 -> 2026-01-01 05:00:00+00:00
#   fastavro: [double, long] 9007199254740993 -> 9007199254740992.0
#   fastavro: [long, double] 9007199254740993 -> 9007199254740993
#   Java: [date, timestamp-millis] 2026-01-01T05:00:00Z -> 2026-01-01T05:00:00Z
#   Java: [double, long] 9007199254740993 -> 9007199254740993
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

cat >write.py <<'PY'
import io
from datetime import datetime, timezone

import fastavro

DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
FIVE = datetime(2026, 1, 1, 5, tzinfo=timezone.utc)
for said, union, value in (
    ("[date, timestamp-millis]", [DATE, TIME], FIVE),
    ("[timestamp-millis, date]", [TIME, DATE], FIVE),
    ("[double, long]", ["double", "long"], 2**53 + 1),
    ("[long, double]", ["long", "double"], 2**53 + 1),
):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, union, value)
    data.seek(0)
    print(f"fastavro: {said} {value} -> {fastavro.schemaless_reader(data, union, None)}")
PY
cat >Write.java <<'JAVA'
import java.io.ByteArrayOutputStream;
import java.time.Instant;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

public class Write {
    public static void main(String[] given) throws Exception {
        String date = "{\"type\": \"int\", \"logicalType\": \"date\"}";
        String time = "{\"type\": \"long\", \"logicalType\": \"timestamp-millis\"}";
        write("[date, timestamp-millis]", "[" + date + "," + time + "]", Instant.parse("2026-01-01T05:00:00Z"));
        write("[double, long]", "[\"double\", \"long\"]", 9007199254740993L);
    }

    static void write(String said, String union, Object value) throws Exception {
        Schema schema = new Schema.Parser().parse(union);
        GenericData data = new GenericData();
        data.addLogicalTypeConversion(new TimeConversions.DateConversion());
        data.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<Object>(schema, data).write(value, encoder);
        encoder.flush();
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes.toByteArray(), null);
        Object read = new GenericDatumReader<Object>(schema, schema, data).read(null, decoder);
        System.out.println("Java: " + said + " " + value + " -> " + read);
    }
}
JAVA
{ venv/bin/python write.py && java -cp "jars/*" Write.java; } | tee seen || exit 2
sed -n 's/^#   \(fastavro\|Java\): /\1: /p' "$here/fastavro_union_takes_the_first.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }

#!/usr/bin/env bash
# Avro 1.12.1 (Java): a union whose first type fits a record is read as another type, which does not fit, and fails.
#
# Guess: the specification takes the first type of the reader's union that recursively matches the writer's schema, and
#       SchemaCompatibility calls the pair COMPATIBLE. So the record can be read.
# Seen: where no full name is the same, Java takes the last record of the same short name, and looks at its fields, not at
#       those of the records inside of them. It reads if the misfit is one level deep. Two levels deep it takes the type
#       that does not fit, and throws for each record. fastavro reads both.
# Who meets it: whoever gives each version of a record a namespace and reads them by a union of versions: the schema check
#       passes, and Java's consumers stop at the first record.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   Java: COMPATIBLE, one level: {"part": {"x": 5}}
#   Java: COMPATIBLE, two levels: AvroTypeException
#   fastavro: one level: {'part': {'x': 5}}
#   fastavro: two levels: {'part': {'detail': {'x': 5}}}
set -euo pipefail

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

cat >schemas.py <<'PY'
"""Writes each writer's schema, a union of two readers' and a document to files, and reads the documents by fastavro."""
import io
import json

import fastavro


def record(name, field, kind):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


def nested(namespace, field, levels):
    """Records with one field each: Order, Part and, with two levels, Detail."""
    names = ["Order", "Part", "Detail"]
    found = record(f"{namespace}.{names[levels]}", field, "int")
    for level in reversed(range(levels)):
        found = record(f"{namespace}.{names[level]}", names[level + 1].lower(), found)
    return found


for levels, said, value in (
    (1, "one", {"part": {"x": 5}}),
    (2, "two", {"part": {"detail": {"x": 5}}}),
):
    writer = nested("shop", "x", levels)
    reader = [nested("first", "x", levels), nested("second", "y", levels)]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer, value)
    files = {"writer": json.dumps(writer).encode(), "reader": json.dumps(reader).encode(), "data": out.getvalue()}
    for name, data in files.items():
        with open(f"{said}.{name}", "wb") as file:
            file.write(data)
    try:
        found = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), writer, reader)
    except Exception as problem:
        found = type(problem).__name__
    print(f"fastavro: {said} level{'s' if levels > 1 else ''}: {found}")
PY
venv/bin/python schemas.py >fastavro.out

cat >Read.java <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.avro.AvroTypeException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;

/** Reads each document by the reader's union. */
public class Read {
    public static void main(String[] given) throws Exception {
        for (String each : new String[] {"one", "two"}) {
            Schema writer = new Schema.Parser().parse(Files.readString(Path.of(each + ".writer")));
            Schema reader = new Schema.Parser().parse(Files.readString(Path.of(each + ".reader")));
            byte[] data = Files.readAllBytes(Path.of(each + ".data"));
            String found;
            try {
                found = new GenericDatumReader<Object>(writer, reader)
                    .read(null, DecoderFactory.get().binaryDecoder(data, null)).toString();
            } catch (AvroTypeException problem) {
                found = "AvroTypeException";
            }
            System.out.println("Java: " + SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType()
                + ", " + each + (each.equals("one") ? " level: " : " levels: ") + found);
        }
    }
}
JAVA
java -cp 'jars/*' Read.java >java.out
cat java.out fastavro.out | tee output
cat >expected <<'OUT'
Java: COMPATIBLE, one level: {"part": {"x": 5}}
Java: COMPATIBLE, two levels: AvroTypeException
fastavro: one level: {'part': {'x': 5}}
fastavro: two levels: {'part': {'detail': {'x': 5}}}
OUT
diff expected output

#!/usr/bin/env bash
# Apache Kafka 4.4.0: Connect's JsonConverter changes numbers that do not fit, and texts where it expects a number.
#
# Guess: a JSON number beyond int64 is a Decimal, a double, or an error. A number that does not fit the schema's type, and a
#       text in its place, are a DataException, as a text that is no Base64 is for bytes.
# Seen: without schemas 18446744073709551615 is -1, and 10 to the 20th is 7766279631452241920. With a schema 3000000000 as
#       int32 is -1294967296, "5" as int32 is 0, "true" as boolean is false, and the number 5 as string is null, all
#       without an error or a warning; so errors.tolerance and a dead letter queue see nothing.
# Who meets it: whoever sinks JSON of producers in other languages: an unsigned 64-bit id or hash, an amount of a token in
#       its smallest unit, a number that a script wrote in quotes. Write such numbers as text, and without a schema.
# Needs Java 17 (JDK), Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when
# it could not tell.
# Output seen:
#   without schemas: 18446744073709551615 -> -1
#   without schemas: 100000000000000000000 -> 7766279631452241920
#   int32: 3000000000 -> -1294967296
#   int32: "5" -> 0
#   boolean: "true" -> false
#   string: 5 -> null
#   bytes: "!!" -> DataException
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>findings</groupId><artifactId>connect</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.4.0</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >maven.log 2>&1 || { cat maven.log; exit 2; }

cat >Numbers.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

public class Numbers {
    public static void main(String[] given) {
        read("without schemas", false, "18446744073709551615");
        read("without schemas", false, "100000000000000000000");
        read("int32", true, "3000000000");
        read("int32", true, "\"5\"");
        read("boolean", true, "\"true\"");
        read("string", true, "5");
        read("bytes", true, "\"!!\"");
    }

    static void read(String type, boolean schemas, String json) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", schemas), false);
        String text = schemas ? "{\"schema\": {\"type\": \"" + type + "\"}, \"payload\": " + json + "}" : json;
        Object value;
        try {
            value = converter.toConnectData("topic", text.getBytes(StandardCharsets.UTF_8)).value();
        } catch (DataException problem) {
            value = "DataException";
        }
        System.out.println(type + ": " + json + " -> " + value);
    }
}
JAVA
java -cp "jars/*" Numbers.java | tee seen || exit 2
sed -n 's/^#   \(.* -> \)/\1/p' "$here/kafka_connect_json_numbers_wrap.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }

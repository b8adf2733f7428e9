"""What is wrong with a file is told with its line, its key, what was given and what is allowed; without Spark."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline.checks import check, checked
from kadence_spark.pipeline.frames import filled, value_type
from kadence_spark.pipeline.model import AVAILABLE_NOW, Pipeline
from kadence_spark.pipeline.reading import Mistake, PipelineFileError, parse, read

GOOD = """\
name = "numbers"
checkpoint = "checkpoint"

[source]
servers = "broker:9092"
topics = ["numbers", "more"]
startingOffsets = "earliest"
kafka.group.id = "numbers-table"

[decode]
format = "json"
schema = "id bigint"

[[transform]]
name = "even"
sql = "SELECT * FROM records WHERE id % 2 = 0"

[[expect]]
name = "positive"
condition = "id > 0"
action = "drop"

[sink]
path = "table"
options = { compression = "zstd" }

[dead_letters]
path = "letters"

[spark]
master = "local[2]"
driver.memory = "1g"
sql.shuffle.partitions = 2
ui.enabled = false
"""


def pipeline(text: str = GOOD, **variables: str) -> Pipeline:
    return checked(parse(text, "numbers.toml", variables), Environment(variables))


def mistakes(text: str, **variables: str) -> list[str]:
    found = check(parse(text, "p.toml", variables), Environment(variables))
    return [f"{each.line}: {each.key}: {each.text}" for each in found]


def instead(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_good_file() -> None:
    made = pipeline()
    assert made.name == "numbers"
    assert made.trigger == AVAILABLE_NOW
    assert made.trigger_ms is None
    assert made.source_options() == {
        "kafka.bootstrap.servers": "broker:9092",
        "subscribe": "numbers,more",
        "startingOffsets": "earliest",
        "kafka.group.id": "numbers-table",
        "includeHeaders": "true",
        "value.format": "json",
        "value.schema": "id bigint",
        "mode": "permissive",
    }
    assert dict(made.spark) == {
        "master": "local[2]",
        "driver.memory": "1g",
        "sql.shuffle.partitions": "2",
        "ui.enabled": "false",
    }
    assert [each.name for each in made.transform] == ["even"]
    assert made.sink.written_as == "parquet"
    assert dict(made.sink.options) == {"compression": "zstd"}
    assert made.decode_action == "drop"


def test_strict_json() -> None:
    strict = instead('format = "json"', 'format = "json-strict"')
    made = pipeline(strict)
    assert made.source_options()["value.format"] == "json-strict"
    assert value_type(made, {}, None) == "struct<id bigint>"
    without = strict.replace('schema = "id bigint"', "")
    assert [each.partition(": The")[0] for each in mistakes(without)] == [
        "10: decode: schema is missing: the columns of the JSON as Spark DDL, such as 'id bigint, name string'"
    ]


def test_defaults() -> None:
    made = pipeline('checkpoint = "c"\n[source]\nservers = "b:1"\ntopics = ["t"]\n[sink]\ntopic = "u"\n')
    assert made.name == "numbers"  # the file's
    assert made.sink.written_as == "kadence"
    assert made.decode_action == "fail"
    assert "includeHeaders" not in made.source_options()


@pytest.mark.parametrize(
    ("text", "ms"),
    [("every 500ms", 500), ("every 10s", 10_000), ("every 5 m", 300_000), ("every 1h", 3_600_000)],
)
def test_triggers(text: str, ms: int) -> None:
    assert pipeline(f'trigger = "{text}"\n{GOOD}').trigger_ms == ms


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('format = "json"', 'format = "jsn"', r"^11: decode\.format: 'jsn' is not known; did you mean 'json'\?"),
        ('action = "drop"', 'action = "skip"', r"^21: expect\[0\]\.action: 'skip' .*allowed are warn, drop, fail"),
        ('checkpoint = "checkpoint"', "", r"^1: : checkpoint is missing: The directory"),
        ("[sink]", "[sinc]", r"^23: sinc: unknown key; did you mean 'sink'\?"),
        ('topics = ["numbers", "more"]', 'topics = "numbers"', r"^6: source\.topics: 'numbers' is no list of texts"),
        ('name = "numbers"', 'name = "7"', r"^1: name: '7' is not a letter, then letters, digits, _ and -"),
        ('name = "numbers"', 'name = "n"\ntrigger = "10s"', r'^2: trigger: \'10s\' is not "available-now", or a time'),
        ('path = "table"', "path = 7", r"^24: sink\.path: 7 is not a text"),
        ('path = "table"', 'path = " "', r"^24: sink\.path: is empty"),
        ('path = "table"', 'path = "table"\nprovenance = 1', r"^25: sink\.provenance: 1 is not true or false"),
        ('path = "letters"', 'pathh = "letters"', r"^28: dead_letters\.pathh: unknown key; did you mean 'path'\?"),
        ("[[transform]]", "[transform]", r"^14: transform: is not a list of tables; write \[\[transform\]\]"),
        ("driver.memory", "driver.list = [1]\ndriver.memory", r"^32: spark\.driver\.list: \[1\] is not a text"),
        ("broker:9092", "${BROKERS}", r"^5: source\.servers: the environment has no variable BROKERS"),
        # The source's own rules.
        ("startingOffsets", "startingOffset", r"^7: source\.startingOffset: .*did you mean 'startingOffsets'\?"),
        ('"earliest"', '"first"', r"^7: source\.startingOffsets: .*first"),
        ("kafka.group.id", "kafka.groop.id", r"^8: source\.kafka\.groop\.id: "),
        ('servers = "broker:9092"', "", r"^4: source: servers is missing"),
        ('topics = ["numbers", "more"]', "", r"^4: source: exactly one of the options subscribe"),
        # What contradicts.
        ('schema = "id bigint"', "", r"^10: decode: schema is missing"),
        ('name = "even"', 'name = "records"', r"^15: transform\[0\]\.name: 'records' is the name of the view"),
        ('path = "table"', 'path = "table"\ntopic = "t"', r"^25: sink\.topic: exactly one of path, table and topic"),
        ('path = "table"', "", r"^23: sink: exactly one of path, table and topic .* not none of them"),
        ('path = "table"', 'topic = "more"', r"^24: sink\.topic: the pipeline reads the topic 'more'"),
        ('path = "table"', 'table = "a.b"', r"^24: sink\.table: format parquet needs path, not table"),
        ('path = "table"', 'path = "a"\nformat = "kafka"', r"^25: sink\.format: a topic is written by"),
        ('path = "table"', 'path = "a"\nformat = "kadence"', r"^24: sink\.path: format kadence and path do not go"),
        ('path = "table"', 'path = "a"\nkey = "id"', r"^25: sink\.key: is for a topic"),
        ('path = "letters"', 'path = "table"', r"^28: dead_letters\.path: is the sink's own"),
        *(
            ('path = "letters"', f'path = "{place}"', r"^28: dead_letters\.path: is the sink's own")
            for place in ("./table", "x/../table", "table//", "{here}/table", "file:{here}/table", "file://{here}/table")
        ),
        ('path = "letters"', 'path = "table/dead"', r"^28: dead_letters\.path: lies in the sink's directory; dead"),
        ('path = "table"', 'path = "letters/x"', r"^28: dead_letters\.path: is a directory that the sink lies"),
        ('path = "table"', 'path = "checkpoint"', r"^24: sink\.path: lies in the checkpoint; rows need a directory"),
        ('path = "table"', 'path = "./checkpoint/rows"', r"^24: sink\.path: lies in the checkpoint; rows"),
        ('path = "letters"', 'path = "checkpoint/dead"', r"^28: dead_letters\.path: lies in the checkpoint; rows"),
        ('checkpoint = "checkpoint"', 'checkpoint = "table/x"', r"^2: checkpoint: lies in the sink's directory; it"),
        ('checkpoint = "checkpoint"', 'checkpoint = "table/_x"', r"^2: checkpoint: lies in the sink's directory; it"),
        ('checkpoint = "checkpoint"', 'checkpoint = "letters/x"', r"^2: checkpoint: lies in the directory of the dead"),
        ('path = "table"', 'topic = "more"\nservers = "broker:9092"', r"^24: sink\.topic: the pipeline reads"),
        ('path = "table"', 'topic = "more"\nservers = "a:1,BROKER:9092"', r"^24: sink\.topic: the pipeline reads"),
        ('path = "letters"', 'topic = "numbers"', r"^28: dead_letters\.topic: the pipeline reads the topic 'numbers'"),
        ('topics = ["numbers", "more"]', 'subscribePattern = "tab.*"', None),
        ('path = "letters"', 'topic = "l"\nkey = "id"', r"^29: dead_letters\.key: is the sink's"),
        ("options = { compression", 'partition_by = ["id"]\noptions = { compression', None),
    ],
)  # fmt: skip
def test_mistakes(old: str, new: str, told: str | None) -> None:
    found = mistakes(instead(old, new.replace("{here}", str(Path.cwd()))))
    if told is None:
        assert found == []
    else:
        assert any(re.search(told, each) for each in found), found


@pytest.mark.parametrize(
    "topics",
    ['subscribePattern = "num.*"', """assign = '{"numbers":[0]}'""", 'topics = ["numbers"]'],
    ids=["pattern", "assign", "list"],
)
@pytest.mark.parametrize("servers", ["localhost:9092", "127.0.0.1:9092", "[::1]:9092,other:1", None])
def test_a_pipeline_that_would_read_its_own_dead_letters(topics: str, servers: str | None) -> None:
    text = instead('topics = ["numbers", "more"]', topics).replace("broker:9092", "localhost:9092")
    more = "" if servers is None else f'\nservers = "{servers}"'
    assert mistakes(text.replace('path = "letters"', f'topic = "numbers"{more}')) == [
        "28: dead_letters.topic: the pipeline reads the topic 'numbers': it would read what it writes"
    ]
    assert mistakes(text.replace('path = "letters"', 'topic = "numbers"\nservers = "elsewhere:9092"')) == []
    assert mistakes(text.replace('path = "letters"', f'topic = "other"{more}')) == []


def test_a_table_of_delta_may_hold_its_checkpoint(tmp_path: Path) -> None:
    text = instead('path = "table"', f'path = "{tmp_path}/table"\nformat = "kadence-delta"').replace(
        'options = { compression = "zstd" }', ""
    )
    within = text.replace('checkpoint = "checkpoint"', f'checkpoint = "{tmp_path}/table/NAME"')
    assert mistakes(within.replace("NAME", "_checkpoint")) == []
    assert mistakes(within.replace("NAME", "checkpoint")) == [
        "2: checkpoint: lies in the sink's directory; it needs a directory of its own"
    ]


def test_a_symbolic_link_to_the_sink(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    text = instead('path = "table"', f'path = "{tmp_path}/table"')
    (told,) = mistakes(text.replace('path = "letters"', f'path = "{tmp_path}/link"'))
    assert told == "28: dead_letters.path: is the sink's own; dead letter records need a place of their own"


@pytest.mark.parametrize(
    ("sink", "dead"),
    [("${PLACE}/table", "/data/table"), ("/data/table", "${PLACE}/x/../table"), ("${PLACE}", "/data")],
)
def test_places_with_variables(sink: str, dead: str) -> None:
    text = instead('path = "table"', f'path = "{sink}"').replace('path = "letters"', f'path = "{dead}"')
    (told,) = mistakes(text, PLACE="/data")
    assert told == "28: dead_letters.path: is the sink's own; dead letter records need a place of their own"


@pytest.mark.parametrize(
    "dead",
    [
        'topic = "${OUT}"',
        'topic = "out"\nservers = "broker:9092"',
        'topic = "out"\nservers = "b2:1, ${BROKER}"',
    ],
)
def test_topics_with_variables_and_servers_of_one_cluster(dead: str) -> None:
    sink = 'path = "table"\noptions = { compression = "zstd" }'
    text = instead(sink, 'topic = "out"').replace('path = "letters"', dead)
    (told,) = mistakes(text, OUT="out", BROKER="broker:9092")
    assert told.endswith(
        "dead_letters.topic: is the sink's own; dead letter records need a place of their own"
    )
    assert (
        mistakes(
            text.replace('topic = "${OUT}"', 'topic = "x"').replace('topic = "out"\ns', 'topic = "x"\ns'),
            OUT="out",
            BROKER="broker:9092",
        )
        == []
    )


@pytest.mark.parametrize("servers", ["servers", "kafka.bootstrap.servers"])
def test_the_servers_of_a_topic_are_a_key_or_an_option(servers: str) -> None:
    """The same name on another cluster is another topic."""
    text = instead('path = "table"\noptions = { compression = "zstd" }', 'topic = "numbers"').replace(
        'topic = "numbers"', f'topic = "numbers"\n{servers} = "SERVERS"'
    )
    assert mistakes(text.replace("SERVERS", "other:9092")) == []
    (told,) = mistakes(text.replace("SERVERS", "broker:9092"))
    assert told.endswith("sink.topic: the pipeline reads the topic 'numbers': it would read what it writes")
    both = text.replace('path = "letters"', f'topic = "numbers"\n{servers} = "SERVERS"')
    (told,) = mistakes(both.replace("SERVERS", "other:9092"))
    assert "dead_letters.topic: is the sink's own" in told


def test_blanks_around_a_place_are_no_part_of_it() -> None:
    """The writers of topics, Delta and Iceberg leave them out."""
    sink = 'path = "table"\noptions = { compression = "zstd" }'
    (told,) = mistakes(instead(sink, 'topic = " numbers"'))
    assert told.endswith("sink.topic: the pipeline reads the topic 'numbers': it would read what it writes")
    for one, other in (("topic = 'out'", "topic = 'out '"), ("path = '/t'", "path = ' /t'")):
        form = "format = 'kadence-delta'\n" if "path" in one else ""
        text = instead(sink, form + one).replace('path = "letters"', form + other)
        (told,) = mistakes(text)
        assert ": is the sink's own" in told


@pytest.mark.parametrize("place", ["s3a://bucket/x/../table", "s3a://bucket/table/", "s3a://bucket//table"])
def test_places_of_other_file_systems(place: str) -> None:
    text = instead('path = "table"', 'path = "s3a://bucket/table"')
    (told,) = mistakes(text.replace('path = "letters"', f'path = "{place}"'))
    assert "is the sink's own" in told
    assert mistakes(text.replace('path = "letters"', 'path = "s3a://other/table"')) == []


def test_names_that_stand_twice() -> None:
    again = '[[expect]]\nname = "positive"\ncondition = "true"\n'
    assert mistakes(GOOD + again) == ["36: expect[1].name: 'positive' is the name of expect[0] already"]


def test_a_topic_takes_no_layout_and_the_sinks_own_options_are_checked() -> None:
    topic = instead(
        'path = "table"\noptions = { compression = "zstd" }', 'topic = "out"\npartition_by = ["id"]'
    )
    assert mistakes(topic) == [
        "25: sink.partition_by: is for a table; a topic's partition follows from the key"
    ]
    (wrong,) = mistakes(
        instead('path = "table"\noptions = { compression', 'topic = "out"\noptions = { kafka.acsk')
    )
    assert wrong.startswith("25: sink.options.kafka.acsk: ")


@pytest.mark.parametrize("name", ["a,b", " id", "id "])
def test_a_name_that_the_option_of_a_lakehouse_sink_would_split(name: str) -> None:
    table = f'format = "kadence-delta"\npath = "table"\npartition_by = ["{name}"]'
    assert mistakes(instead('path = "table"\noptions = { compression = "zstd" }', table)) == [
        f"26: sink.partition_by: format kadence-delta takes no name with a comma, or a space at either end: {name!r}"
    ]


def test_several_mistakes_are_told_at_once_and_in_order() -> None:
    text = instead('"earliest"', '"first"\nmaxOffsetsPerTrigger = "many"\nidlePolMs = 5').replace(
        "id > 0", "${X}"
    )
    source = ["source.startingOffsets", "source.maxOffsetsPerTrigger", "source.idlePolMs"]
    assert [each.split(": ")[1] for each in mistakes(text, X="id > 1")] == source
    # Shapes, the environment, the source's options and what contradicts, in one list.
    text = text.replace('"json"', '"jsn"').replace('path = "letters"', 'path = "table"\npth = 1')
    assert [each.split(": ")[1] for each in mistakes(text.replace('"drop"', '"skip"'))] == [
        *source,
        "decode.format",
        "expect[0].condition",
        "expect[0].action",
        "dead_letters.path",
        "dead_letters.pth",
    ]


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        # What only follows from a mistake is not told.
        ("topics", "topcs", ["source.topcs"]),
        ('servers = "broker:9092"', 'servers = ["broker:9092"]', ["source.servers"]),
        ('path = "table"', 'pth = "table"', ["sink.pth"]),
        ("[source]", "[sauce]", ["", "sauce"]),
        ('format = "json"\nschema', 'formt = "json"\nschma', ["decode", "decode.formt", "decode.schma"]),
        ('name = "even"', "", ["transform[0]"]),
        ('topics = ["numbers", "more"]', 'topics = ["numbers", 1]', ["source.topics"]),
        ('path = "table"\n', 'topic = "${OUT}"\nformat = "kadence"\n', ["sink.topic"]),
    ],
)
def test_what_follows_from_a_mistake_is_not_told(old: str, new: str, keys: list[str]) -> None:
    assert [each.split(": ")[1] for each in mistakes(instead(old, new))] == keys


def test_the_error_has_all_of_them_and_is_picklable() -> None:
    with pytest.raises(PipelineFileError) as raised:
        pipeline(instead('format = "json"', 'format = "xml"').replace('"drop"', '"mark"'))
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.mistakes == raised.value.mistakes
    assert (
        str(copy)
        .splitlines()[0]
        .startswith("numbers.toml:11: decode.format: 'xml' is not known; allowed are json")
    )
    assert len(copy.mistakes) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = \n", 1),
        ('a = 1\nb = "x\n', 2),
        ("a = 1\na = 2\n", 2),
        ('[x]\ny = """\n', 3),
        ("a = " + "9" * 5000, 1),
        ("a = " + "[" * 50_000, 1),
    ],
)
def test_what_is_no_toml(text: str, line: int) -> None:
    (found,) = parse(text, "p.toml", {}).mistakes
    assert (found.line, found.key) == (line, "")
    assert found.text.startswith("this is no TOML")


def test_a_setting_that_is_a_value_and_a_table() -> None:
    two = 'sql.catalog.x = "C"\nsql.catalog.x.type = "hadoop"\n'
    (found,) = parse(GOOD + two, "p.toml", {}).mistakes
    assert (found.line, "stands in quotes as a value" in found.text) == (36, True)
    settings = pipeline(GOOD + two.replace("sql.catalog.x =", '"sql.catalog.x" =')).spark
    assert (settings["sql.catalog.x"], settings["sql.catalog.x.type"]) == ("C", "hadoop")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml' cannot be read: No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe4'")
    with pytest.raises(ConfigError, match=r"latin\.toml' cannot be read: .*utf-8"):
        read(tmp_path / "latin.toml")


def test_a_mistake_as_text() -> None:
    assert str(Mistake("a.toml", 3, "", "no")) == "a.toml:3: no"
    assert str(Mistake("a.toml", 3, "sink", "no")) == "a.toml:3: sink: no"


def test_a_secret_is_never_shown() -> None:
    text = instead(
        "kafka.group.id",
        'kafka.sasl.jaas.config = "${JAAS}"\nkafka.security.protocol = "${JAAS}"\nkafka.group.id',
    )
    found = mistakes(text, JAAS="hunter22")
    assert found
    assert "hunter22" not in "".join(found)
    environment = Environment({"JAAS": "hunter22"})
    document = parse(
        instead("kafka.group.id", 'kafka.ssl.keystore.password = "${JAAS}"\nkafka.group.id'),
        "p",
        {"JAAS": "hunter22"},
    )
    assert (
        environment.fill_all((document.pipeline or pipeline()).source_options())[
            "kafka.ssl.keystore.password"
        ]
        == "hunter22"
    )
    assert "hunter22" not in repr(document) + repr(environment)
    assert environment.hide("refused: hunter22!") == "refused: ${JAAS}!"


def test_variables() -> None:
    environment = Environment({"A": "one", "EMPTY": ""})
    assert environment.fill("${A}-${B:-two}-${EMPTY}-${C:-}-$A") == "one-two---$A"
    with pytest.raises(ConfigError, match=r"no variable B, which '\$\{B\}' asks for"):
        environment.fill("${B}")
    assert environment.hide("one two") == "one two"  # too short to be a secret


def test_variables_in_sql() -> None:
    text = (
        instead("id bigint", "id ${TYPE}")
        .replace("id % 2 = 0", "id % ${BY} = 0")
        .replace("id > 0", "id > ${BY}")
    )
    text += '[aggregate]\nsql = "SELECT count(*) FROM records GROUP BY ${AT}"\nwatermark = "${AT}"\ndelay = "1m"\n'
    values = {"TYPE": "bigint", "BY": "7", "AT": "seen_at"}
    environment = Environment(values)
    made = filled(checked(parse(text, "p", values), environment), environment)
    assert made.decode is not None
    assert made.decode.schema == "id bigint"
    assert made.transform[0].sql == "SELECT * FROM records WHERE id % 7 = 0"
    assert made.expect[0].condition == "id > 7"
    assert made.aggregate is not None
    assert (made.aggregate.sql, made.aggregate.watermark) == (
        "SELECT count(*) FROM records GROUP BY seen_at",
        "seen_at",
    )


def test_every_example_is_a_good_file() -> None:
    examples = sorted((Path(__file__).parents[5] / "examples").glob("*.toml"))
    assert examples
    for example in examples:
        assert check(read(example, {}), Environment({})) == []
        assert (example.parent / example.read_text().splitlines()[0].removeprefix("#:schema ")).exists()


def test_the_published_schema_is_that_of_the_code() -> None:
    from kadence_spark.pipeline.schema import json_schema, schema_text

    page = Path(__file__).parents[5] / "docs" / "pipeline.schema.json"
    assert page.read_text() == schema_text(), "run `make docs`"
    schema = json.loads(page.read_text())
    assert schema == json_schema()
    assert schema["required"] == ["checkpoint", "source", "sink"]
    assert schema["properties"]["expect"]["items"]["properties"]["action"]["enum"] == ["warn", "drop", "fail"]
    assert "startingOffsets" in schema["properties"]["source"]["properties"]

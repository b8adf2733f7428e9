"""The options with which a batch reads ranges of a pipeline's topics."""

from __future__ import annotations

from kadence.types import TopicPartition
from kadence_spark.pipeline.ranges import Range, batch_options
from kadence_spark.source.options import STREAM_ONLY, parse


def test_no_option_of_a_batch_is_one_of_streams_only() -> None:
    given = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "localhost:9092",
        "failOnDataLoss": "false",
        **dict.fromkeys(STREAM_ONLY, "5"),
    }
    made = batch_options(given, [Range(TopicPartition("t", 1), 3, 7)])
    assert not made.keys() & set(STREAM_ONLY)
    options = parse(made, streaming=False)
    assert not options.fail_on_data_loss
    assert "subscribe" not in made

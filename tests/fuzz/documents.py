"""JSON documents: what the compiled reader takes, it reads as the one behind it does.

The input is one document per line, as one column. Two more reads of it: the whole column at once, as the Spark source
does it, and each document alone.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from tests.fuzz.target import Target

from kadence.columns.json_rows import JsonRows
from kadence_spark.decode.json_values import JsonFormat

__all__ = ["DOCUMENTS"]

_SEEDS: Final = (
    b"{}",
    b' { "id" : 1 , "x" : 2.5e3 }\t',
    '{"näme":"Ä😀","other":{"a":[1,"]}",{}]}}'.encode(),
    b'{"n\xc3\xa4me":"\\ud83d\\ude00 \\u00e4\\n\\"\\\\"}',
    b'{"n\xc3\xa4me":5.10,"tags":[true,null,7],"id":null}',
    b'{"x":0.30000000000000004,"f":0.1,"price":-12345678.1}',
    b'{"x":1.7976931348623157e308,"id":-9223372036854775808,"tiny":-128}',
    b'{"x":"NaN","f":-Infinity,"price":"1.005","ok":false}',
    b'{"at":"2024-01-02T03:04:05.123456+02:00","local":"2024-01-02 03:04:05","day":"2024-02-29","ok":true}',
    b'{"at":1704164645,"inner":{"b":[{"c":"d"},null,{}],"a":1}}',
    b'{"at":"1900-02-29","day":"9999-12-31","local":"0001-01-01 00:00:00.000001"}',
    b'{"id":1}\n{"id":2}\n{"id":3,"tags":[]}',
    b'{"id":1}\nnot JSON\n{"id":"1","tags":["a","b"]}',
)


@functools.cache
def _readers() -> tuple[Any, JsonRows, JsonFormat, JsonFormat]:
    """The row type, the compiled reader, what there is without it, and both as the Spark source has them."""
    from tests.spark.decode.json_row import (  # pyarrow, which is not needed to list seeds
        ROW,
        RULES,
        reader_of,
        without_rows,
    )

    return ROW, reader_of(ROW), without_rows(ROW), JsonFormat(ROW, RULES)


def _read(data: bytes) -> object:
    import pyarrow as pa

    row, compiled, plain, both = _readers()
    column = pa.array(data.split(b"\n"), pa.binary())
    found = compiled.read(column)
    assert found is not None
    taken, refused = found
    taken.validate(full=True)
    assert taken.type == row
    assert refused == [number for number in range(len(taken)) if not taken[number].is_valid]
    each_alone = [plain.decode(column.slice(number, 1)) for number in range(len(column))]
    for number, expected in enumerate(each_alone):
        if number not in refused:
            assert not expected.bad, expected.bad
            assert _text(taken[number]) == _text(expected.column[0])
    whole = both.decode(column)
    assert whole.bad.keys() == {number for number, each in enumerate(each_alone) if each.bad}
    for number, expected in enumerate(each_alone):
        assert _text(whole.column[number]) == _text(expected.column[0])
    return None if len(refused) == len(column) else taken


def _text(value: Any) -> str:
    """Spark knows years that Python does not."""
    import pyarrow as pa

    try:
        return repr(value.as_py())
    except OverflowError:
        text: str = pa.array([value]).to_string()
        return text


DOCUMENTS: Final = Target("documents", lambda: list(_SEEDS), _read, share=1_000)

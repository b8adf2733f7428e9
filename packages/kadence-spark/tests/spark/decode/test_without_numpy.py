"""Neither PySpark nor pyarrow brings numpy or pandas: what decodes asks for neither of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
sys.modules["numpy"] = sys.modules["pandas"] = None
import pyarrow as pa
kind = pa.struct([("n", pa.int32()), ("s", pa.string())])
"""

JSON = """
from kadence_spark.decode.json_shapes import Rules
from kadence_spark.decode.json_values import JsonFormat
values = pa.array([b'{"n": 1}', None, b'{"n": 2, "s": [1]}', b"broken", b'{"n": 3}', b'{"n": 4, "s": "\\u0000"}'])
decoded = JsonFormat(kind, Rules(None)).decode(values)
print([row and row["n"] for row in decoded.column.to_pylist()], sorted(decoded.bad))
"""

AVRO = """
from kadence_schemas.columns.avro import AvroFormat, parsed
from kadence_schemas.columns.wire import FramedFormat
from kadence_schemas.schemas import ResolvedSchema
fields = '{"name": "n", "type": "int"}, {"name": "s", "type": "string"}'
schema = parsed(ResolvedSchema("AVRO", '{"type": "record", "name": "R", "fields": [%s]}' % fields))
values = pa.array([b"\\0\\0\\0\\0\\7\\2\\2a", None, b"\\0\\0", b"\\0\\0\\0\\0\\4\\6\\2a", b"\\0\\0\\0\\0\\7\\10\\2a"])
decoded = FramedFormat(kind, lambda frames: dict.fromkeys(frames, AvroFormat(schema, None, kind))).decode(values)
print([row and row["n"] for row in decoded.column.to_pylist()], sorted(decoded.bad))
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [(JSON, "[1, None, 2, None, 3, 4] [3]"), (AVRO, "[1, None, None, 3, 4] [2]")],
    ids=["json", "avro"],
)
def test_decoding_without_numpy_and_pandas(code: str, found: str) -> None:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == found, done.stderr

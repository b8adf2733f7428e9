"""The status of a pipeline, from the files of the run and of Spark in its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.checkpoint import CommittedBatch, committed
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.lock import is_held
from kadence_spark.pipeline.progress import Progress, progress_file

__all__ = ["Status", "status"]


@dataclass(frozen=True, slots=True)
class Status:
    """A pipeline's state.

    Attributes:
        progress: of its last run; None: that run was of a version without such a file.
        state: that of the progress, or killed if that is running and no process runs.
        committed: None: no batch has ended yet.
    """

    progress: Progress | None
    state: str
    committed: CommittedBatch | None

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        shown: dict[str, Any] = {"state": self.state}
        if self.progress is not None:
            told = self.progress
            shown |= {
                name: getattr(told, name)
                for name in told.__slots__
                if name not in ("state", "ends", "ends_ms")
            }
            shown |= {"lag": told.total_lag, "seconds_to_catch_up": told.seconds_to_catch_up}
            shown["lag_by_partition"] = dict(told.lag)
        if self.committed is not None:
            shown["committed_batch"] = self.committed.batch
            shown["committed_offsets"] = {
                str(p): offset for p, offset in sorted(self.committed.offsets.items())
            }
        return shown


def status(files: Files, checkpoint: str) -> Status:
    """Read a checkpoint.

    Raises:
        IllegalStateError: there is none.
    """
    checkpoint = checkpoint.rstrip("/")
    text = files.read(progress_file(checkpoint))
    done = committed(files, checkpoint)
    if text is None and done is None:
        raise IllegalStateError(f"no pipeline has run with the checkpoint {checkpoint}")
    progress = None if text is None else Progress.from_json(text)
    state = "unknown" if progress is None else progress.state
    if state in ("starting", "running") and is_held(checkpoint) is False:
        state = "killed"
    return Status(progress, state, done)

"""All stories of many mutations, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import dispatch, live
from tests.fuzz.target import Story
from tests.hostile import answered, damaged

__all__ = ["STORIES"]

STORIES: Final[dict[str, Story]] = {
    each.name: each for each in (dispatch.NONSENSE, *live.STORIES, *answered.STORIES, *damaged.STORIES)
}

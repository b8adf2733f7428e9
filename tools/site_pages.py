"""A hook of mkdocs: makes pages of the texts at the top of the project, and cuts links that lead out of docs/.

Pages link to each other as files, so that they can be read in the repository, too. What a link there may name and the
site lacks (tests, sources) is shown as its text alone.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
TEXTS: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""Files at the top, and the pages that they become."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)((?:#[^)]*)?)\)")


def as_page(text: str) -> str:
    """A text from the top of the project with its links as seen from docs/."""

    def moved(link: re.Match[str]) -> str:
        words, target, anchor = link.groups()
        return f"[{words}]({TEXTS.get(target, target.removeprefix('docs/'))}{anchor})"

    return _LINK.sub(moved, text)


def on_files(files: Files, config: Any) -> Files:
    for name, page in TEXTS.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, content=as_page((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: object) -> str:
    def kept(link: re.Match[str]) -> str:
        words, target, anchor = link.groups()
        if "://" in target or not target.startswith("../"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        if files.get_file_from_path(path) is not None:
            return link[0]
        top = path.removeprefix("../")
        return f"[{words}]({TEXTS[top]}{anchor})" if top in TEXTS else words

    return _LINK.sub(kept, markdown)

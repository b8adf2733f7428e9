"""A hook of mkdocs: makes pages of the texts at the top of the project, and cuts links that lead out of docs/.

Pages link to each other as files, so that they can be read in the repository, too. The page of the examples gets their
sources, and links to them lead there. What else a link may name and the site lacks (tests, for one) is shown as its
text alone.
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

EXAMPLES: Final = "examples.md"
"""The page that has the sources of the examples that it links to."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)((?:#[^)]*)?)\)")


_LANGUAGES: Final = {".py": "python", ".toml": "toml"}


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
        if top.startswith("examples/") and Path(top).suffix in _LANGUAGES:
            page_of_all = posixpath.relpath(EXAMPLES, posixpath.dirname(page.file.src_uri) or ".")
            return f"[{words}]({page_of_all}#{_anchor(top)})"
        return f"[{words}]({TEXTS[top]}{anchor})" if top in TEXTS else words

    shown = _LINK.sub(kept, markdown)
    return shown + _sources(markdown) if page.file.src_uri == EXAMPLES else shown


def _sources(markdown: str) -> str:
    """A section for each program that the page links to."""
    paths = dict.fromkeys(target.removeprefix("../") for _, target, _ in _LINK.findall(markdown))
    sections = [
        f"### `{path}` {{#{_anchor(path)}}}\n\n```{_LANGUAGES[Path(path).suffix]}\n{(ROOT / path).read_text()}```\n"
        for path in paths
        if path.startswith("examples/") and Path(path).suffix in _LANGUAGES
    ]
    return "\n".join(["\n\n## Sources\n", *sections])


def _anchor(path: str) -> str:
    return re.sub(r"\W+", "-", path.removeprefix("examples/"))

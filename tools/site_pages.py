"""A hook of mkdocs: makes pages of the texts at the top of the project, and cuts links that lead out of docs/.

It writes llms.txt, too (https://llmstxt.org): an index of the pages for programs that read text. llms-full.txt has all.

Pages link to each other as files, so that they can be read in the repository, too. The page of the examples gets their
sources, and links to them lead there. What else a link may name and the site lacks (tests, for one) is shown as its
text alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
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

_FENCE = re.compile(r"^```.*?^```+$", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^<!-- ::: ([\w.]+)( inherited_members)? -->$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)((?:#[^)]*)?)\)")


_pages: Final[dict[str, str]] = {}
"""What each page says, by its source, in the order of the navigation."""

_LANGUAGES: Final = {".py": "python", ".toml": "toml"}


def as_page(text: str) -> str:
    """A text from the top of the project with its links as seen from docs/."""

    def moved(link: re.Match[str]) -> str:
        words, target, anchor = link.groups()
        if target in TEXTS or "://" in target:
            return f"[{words}]({TEXTS.get(target, target)}{anchor})"
        return f"[{words}]({posixpath.relpath(target, 'docs')}{anchor})"

    return _LINK.sub(moved, text)


def as_site(markdown: str) -> str:
    """A page of the reference with its entries as mkdocstrings takes them: in the repository they are comments."""
    return _ENTRY.sub(
        lambda found: (
            f"::: {found[1]}" + ("\n    options:\n      inherited_members: true" if found[2] else "")
        ),
        markdown,
    )


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

    shown = as_site(_LINK.sub(kept, markdown))
    if page.file.src_uri == EXAMPLES:
        shown += _sources(markdown)
    _pages[page.file.src_uri] = shown
    return shown


def on_nav(nav: Any, **_: object) -> None:
    # Files come by their names.
    _pages.clear()
    _pages.update(dict.fromkeys((page.file.src_uri for page in nav.pages), ""))


def on_post_build(config: Any, **_: object) -> None:
    site = Path(config.site_dir)
    (site / "llms.txt").write_text(llms_index(config.site_name, config.site_description, _pages))
    (site / "llms-full.txt").write_text("\n\n".join(text.strip() for text in _pages.values()) + "\n")


def llms_index(name: str, description: str, pages: Mapping[str, str]) -> str:
    """The index: a line for each page with its title and its first sentence."""
    lines = [f"# {name}", "", f"> {description}", "", "## Pages", ""]
    for source, text in pages.items():
        title, _, rest = text.lstrip().removeprefix("# ").partition("\n")
        lines.append(f"- [{title.strip()}]({source.removesuffix('.md')}.html){_first_sentence(rest)}")
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", _FENCE.sub("", text)):
        words = " ".join(paragraph.split())
        # Not a picture, a table, a list, a heading or a comment.
        if words and words[0] not in "!|-#<`:":
            return ": " + _LINK.sub(r"\1", re.split(r"(?<=[.!?]) ", words)[0])
    return ""


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

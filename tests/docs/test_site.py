"""What `make site` makes beside the pages. It builds strictly: pages, links and anchors that are missing end it."""

from __future__ import annotations

import pytest


def test_the_index_for_programs_has_each_page_with_its_first_sentence() -> None:
    """llms.txt. `make site` installs mkdocs, whose hook writes it."""
    pytest.importorskip("mkdocs")
    from site_pages import llms_index

    pages = {
        "index.md": "# Kadence\n\n![it](a.svg)\n\n```python\nx = 1\n\ny = 2\n```\n\nIt reads [topics](t.md). More.\n",
        "reference/a.md": "# A table\n\n| a |\n|---|\n",
    }
    assert llms_index("Kadence", "A client", pages) == (
        "# Kadence\n\n> A client\n\n## Pages\n\n"
        "- [Kadence](index.html): It reads topics.\n- [A table](reference/a.html)\n"
    )


def test_links_of_texts_at_the_top_lead_into_the_site_or_out_of_it() -> None:
    pytest.importorskip("mkdocs")
    from site_pages import as_page

    text = "[a](docs/a.md#b), [changes](CHANGELOG.md), [findings](findings/README.md), [Kafka](https://kafka.apache.org/x)"
    # Where ``../`` leads out of the site, only the words stay.
    assert as_page(text) == (
        "[a](a.md#b), [changes](changelog.md), [findings](../findings/README.md), [Kafka](https://kafka.apache.org/x)"
    )

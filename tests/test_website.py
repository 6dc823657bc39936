"""The site: every page has its place in the navigation, every link and anchor leads somewhere, and MkDocs builds it without a warning."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages import script

website = script("website")


class Settings(yaml.SafeLoader):
    """Reads the settings of MkDocs, which name a function of Python."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, _, node: loader.construct_mapping(node, deep=True))


@cache
def pages() -> Mapping[str, str]:
    found: dict[str, str] = website.pages()
    return found


def settings() -> Any:
    return yaml.load(website.CONFIG.read_text(encoding="utf-8"), Settings)


@cache
def anchors(page: str) -> set[str]:
    """The anchors of the headings of a page, as hosts of repositories and the site name them."""
    headings = re.findall(r"^#+ (.+)$", website.outside_fences(pages()[page]), re.MULTILINE)
    names = [re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "]", heading)).strip().lower().replace(" ", "-") for heading in headings]
    return set(names)


def test_each_page_has_one_place_in_the_navigation() -> None:
    listed = list(website.nav_paths(settings()["nav"]))
    assert not [page for page, count in Counter(listed).items() if count > 1]
    assert sorted(set(pages()) - set(listed)) == [], "put these pages into `nav` of docs/mkdocs.yml"
    assert sorted(set(listed) - set(pages())) == [], "docs/mkdocs.yml lists pages that are not there"


def test_each_link_of_a_page_leads_to_a_page_or_a_file_and_to_a_heading_of_it() -> None:
    lost = []
    for page, text in pages().items():
        for link, anchor in website.links(text):
            path = website.target(page, link) if link else page
            if path not in pages() and not (website.ROOT / path).is_file():
                lost.append(f"{page}: {link}")
            elif anchor and path in pages() and anchor not in anchors(path):
                lost.append(f"{page}: {link}#{anchor}")
    assert not lost


def test_the_api_pages_name_exactly_the_public_names() -> None:
    import probes
    import probes.testing

    for name in (name for _, _, names in website.API.values() for name in names):
        if name.startswith("probes.integrations"):
            continue  # they need the packages of their trainers
        place, _, attribute = name.rpartition(".")
        assert place == "" or hasattr(__import__(place, fromlist=[attribute]), attribute), name
    named = {name.rpartition(".")[2] for _, _, names in website.API.values() for name in names}
    kit = {name for name in vars(probes.testing) if not name.startswith("_") and callable(getattr(probes.testing, name))}
    assert {name for name in kit if name != "require_torch"} <= named
    assert all((getattr(probes, name).__doc__ or "").strip() for name in probes.__all__ if name != "__version__")


def test_a_policy_allows_the_scripts_that_are_in_a_page_and_no_others() -> None:
    page = website.restricted('<html><head><meta charset="utf-8"></head><script>one()</script><script src="x.js"></script></html>')
    digest = f"sha256-{base64.b64encode(hashlib.sha256(b'one()').digest()).decode()}"
    assert page.index("Content-Security-Policy") < page.index("<script>")
    assert digest in page
    assert "unsafe-inline" not in page.partition("script-src")[2].partition(";")[0]


def test_the_description_of_the_package_has_no_link_or_picture_that_works_only_in_the_repository() -> None:
    readme = (website.ROOT / "README.md").read_text(encoding="utf-8")
    text = script("long_description").description(readme)
    assert not re.findall(r"\]\((?!https?:)", website.outside_fences(text))
    assert website.FENCE.findall(text) == website.FENCE.findall(readme)
    assert "- **It fails before step 0.**" in text


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not installed; the extra `docs` brings it")
@pytest.mark.filterwarnings("ignore")  # of MkDocs and its plug-ins
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    website.build(tmp_path / "pages", tmp_path / "site")
    built = {
        path.relative_to(tmp_path / "site").as_posix(): path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")
    }
    assert len(built) == len(pages()) + 1  # and the page for what is not found
    fetched = re.compile(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//")
    assert not [page for page, text in built.items() if fetched.search(text)]
    assert "probes.attach" in built["docs/api/probes.html"]

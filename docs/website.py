"""Build the site of the documentation from the pages of the repository, which stay as they are.

Usage: python docs/website.py     (`make site`; tests/test_website.py checks the pages, and the build where MkDocs is installed)
"""

from __future__ import annotations

import base64
import hashlib
import html
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
CONFIG = ROOT / "docs" / "mkdocs.yml"
PAGES = ("*.md", "docs/**/*.md", "schemas/*.md", "examples/*/README.md", "benchmarks/README.md")
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[\w-]+)?(\))")
STYLE = "docs/site.css"
FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
FILE_OF_FENCE = re.compile(r"^( *```\w+) file=(\S+)$", re.MULTILINE)
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
API = {
    "probes": ("The package", "What `import probes` gives.", ["probes"]),
    "capturing": (
        "Capturing",
        "What `probes.attach`, `probes.look` and `probes.resolve` return.",
        ["probes.runner.run.Run", "probes.runner.summary.RunSummary", "probes.runner.look.look.Look", "probes.plan.binding.Plan"],
    ),
    "reading": (
        "Reading",
        "What `probes.open` and `probes.open_all` return.",
        [
            "probes.reader.run.RunReader",
            "probes.reader.series.Series",
            "probes.reader.selected.Capture",
            "probes.reader.series_set.SeriesSet",
            "probes.reader.runs.Runs",
            "probes.reader.samples.sample_dataset.SampleDataset",
            "probes.clock.Clock",
            "probes.clock.SeriesKey",
        ],
    ),
    "proof": (
        "Verdicts",
        "What `probes.verify` and `probes.diff` return.",
        [
            "probes.proof.finding.Verdict",
            "probes.proof.finding.Finding",
            "probes.proof.finding.CheckedFile",
            "probes.proof.comparison.difference.Difference",
        ],
    ),
    "errors": ("Errors", "Every error has `probes.ProbesError` as a base class.", ["probes.errors"]),
    "integrations": (
        "Trainers",
        "Callbacks and functions for trainers; [frameworks](../frameworks.md) shows how to use them.",
        [
            "probes.integrations.transformers.TrainerProbes",
            "probes.integrations.lightning.LightningProbes",
            "probes.integrations.ignite.IgniteProbes",
            "probes.integrations.accelerate.attach_prepared",
        ],
    ),
    "kinds": (
        "Kinds of your own",
        "What a transform, an edit or a sink derives from. [Contributing](../../CONTRIBUTING.md) and [the example of a "
        "plug-in](../../examples/plugin/README.md) show how.",
        ["probes.component", "probes.signature.Signature", "probes.signature.SignatureError"],
    ),
    "testing": (
        "Tests of kinds",
        "Tries what every kind must do.",
        [f"probes.testing.{name}" for name in ("check_transform", "check_edit", "check_sink", "check_component", "example")],
    ),
}


def pages() -> dict[str, str]:
    """Every page of the site, by its path: those of the repository, those of the API, and lists of linked folders."""
    paths = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    found |= {f"docs/api/{name}.md": api_page(*about) for name, about in API.items()}
    listed = {folder for path, text in found.items() for folder in folders(path, text)}
    shown = {path: titled(with_pages_of_folders(path, text)) for path, text in found.items()}
    return shown | {f"{folder}/index.md": listing(folder) for folder in listed if f"{folder}/README.md" not in found}


def api_page(title: str, about: str, names: list[str]) -> str:
    """A page of the API reference: a directive for each object, which mkdocstrings replaces by its docstrings."""
    return f"# {title}\n\n{about}\n\n" + "\n".join(f"::: {name}\n" for name in names)


def outside_fences(text: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text)


def links(text: str) -> Iterator[tuple[str, str]]:
    """The relative links of a page: path and anchor, either may be empty."""
    bare = re.sub(r"`[^`\n]*`", "", outside_fences(text))
    for found in re.finditer(r"\]\(([^)\s#:]*)(?:#([\w-]+))?\)", bare):
        yield found[1], found[2] or ""


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page means."""
    return os.path.normpath((Path(page).parent / link).as_posix())


def folders(page: str, text: str) -> set[str]:
    """The folders that a page links to."""
    return {path for link, _ in links(text) if link and (ROOT / (path := target(page, link))).is_dir()}


def with_pages_of_folders(page: str, text: str) -> str:
    """A page whose links to folders lead to the README or the list of the folder."""

    def changed(found: re.Match[str]) -> str:
        folder = ROOT / target(page, found[2])
        if not folder.is_dir():
            return found[0]
        name = "README.md" if (folder / "README.md").exists() else "index.md"
        return f"{found[1]}{found[2].rstrip('/')}/{name}{found[3] or ''}{found[4]}"

    return LINK.sub(changed, text)


def titled(text: str) -> str:
    """A page whose blocks with a file name show it as their title."""
    return FILE_OF_FENCE.sub(r'\1 title="\2"', text)


def listing(folder: str) -> str:
    """The page of a folder that has no README: a link to each file."""
    names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file() and not path.name.startswith("."))
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {folder}\n\n" + "\n".join(f"- [{name}]({name})" for name in names) + "\n"


def linked_files(shown: dict[str, str]) -> set[str]:
    """The files other than pages that the pages link to or show."""
    found = {target(page, link) for page, text in shown.items() for link, _ in links(text) if link}
    return {path for path in found if path not in shown and (ROOT / path).is_file()}


def lay_out(folder: Path) -> None:
    """Write all pages, and the files that they link to, into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shown = pages()
    for path, text in shown.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for path in {*linked_files(shown), STYLE}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)


def nav_paths(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from nav_paths(one)


def restricted(page: str) -> str:
    """An HTML page with a content security policy: it runs the scripts that it has now, and fetches nothing from elsewhere."""
    scripts = sorted({base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in INLINE_SCRIPT.findall(page)})
    allowed = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in scripts)])
    styles = "style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    policy = f"default-src 'self'; script-src {allowed}; {styles}; object-src 'none'; base-uri 'none'"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{meta}', 1)


def build(laid_out: Path, site: Path) -> None:
    """Build the site; a warning of MkDocs is an error.

    Raises:
        SystemExit: there were warnings, which are printed, or MkDocs is not installed.
    """
    try:
        from mkdocs.commands.build import build as build_site
        from mkdocs.config import load_config
    except ModuleNotFoundError:
        sys.exit('MkDocs is not installed; install it with: pip install --editable ".[docs]"')
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")  # MkDocs counts warnings, and its caller prints them
    lay_out(laid_out)
    config = load_config(str(CONFIG), docs_dir=str(laid_out), site_dir=str(site))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build_site(config)
    finally:
        config.plugins.on_shutdown()
    for path in site.rglob("*.html"):
        path.write_text(restricted(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    build(ROOT / "build" / "site-pages", ROOT / "build" / "site")

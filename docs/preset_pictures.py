"""Run the program of docs/presets.md with presets, and take a picture of the part of each report that answers the question.

Usage: python docs/preset_pictures.py     (needs Chromium, see CONTRIBUTING.md; writes docs/presets/*.png)
"""

from __future__ import annotations

import sys
import tempfile
from base64 import b64decode
from contextlib import chdir, suppress
from pathlib import Path

from probes.errors import Stopped
from probes.report.document import report
from tests.report.chromium import chromium, load

sys.path.insert(0, str(Path(__file__).parent))
import presets  # the script next to this one

FOLDER = Path(__file__).absolute().with_name("presets")
PARTS = {
    "gradient-flow": "layers",
    "dead-units": "pictures",
    "activation-stats": "layers",
    "layer-outputs": "pictures",
    "save-values": "pictures",
    "saturation": "pictures",
    "weight-and-grad-norms": "layers",
    "gradient-noise-scale": "layers",
    "update-ratio": "layers",
    "attention-entropy": "pictures",
    "nan-hunt": "layers",
}
"""The part of the page, by its id; `memory-by-module` needs an accelerator and has no picture."""

SERIES = {"saturation": "largest"}
"""The series of a preset whose picture is taken, if it is not the first."""

CHOICE = (
    "const one = document.getElementById('picture-series');"
    "one.value = [...one.options].find(option => option.textContent.startsWith(arguments[0])).value; one.dispatchEvent(new Event('change'))"
)


def main() -> None:
    """Write the pictures."""
    space: dict[str, object] = {}
    exec(compile(presets.PROGRAM, "program.py", "exec"), space)
    train = space["train"]
    assert callable(train)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chdir(folder), chromium(900, 1400) as browser:
        for preset, part in PARTS.items():
            with suppress(Stopped):
                train(preset, **({"lr": 1e4} if preset in presets.STOPPED else {}), **presets.SETTINGS.get(preset, {}))
            page = Path(f"{preset}.html").absolute()
            page.write_text(report([Path(f"runs/{preset}")])[0], encoding="utf-8")
            load(browser, page)
            if preset in SERIES:
                browser.execute_script(CHOICE, SERIES[preset])
            browser.execute_async_script("setTimeout(arguments[0], 500)")
            place = browser.find_element("id", part).rect
            clip = {name: place[name] for name in ("x", "y", "width", "height")} | {"scale": 0.8}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            (FOLDER / f"{preset}.png").write_bytes(b64decode(shot["data"]))
            print(f"{preset}: {(FOLDER / f'{preset}.png').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

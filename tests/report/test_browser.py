"""The page in a real browser: it loads without errors, every view shows the numbers of the file, and names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes.clock import SeriesKey
from probes.report.document import report
from probes.transforms.stats import STATS
from tests.reader.recorded import Recording
from tests.report.chromium import chromium, load, wait

pytestmark = pytest.mark.browser

EVIL = "h.1</script><script>window.stolen=1</script><img src=x onerror=window.stolen=1><b>$x$\u202e" + "x" * 4000
SHOWN_FIRST = {
    "run": "0",
    "rank": "",
    "phase": "train",
    "group": '["acts","output","train"]',
    "figure": "std",
    "order": "model",
    "scale": "linear",
}
LAYERS = ("h.0", EVIL, "h.2")
STEPS, BINS = 6, ("under", "[0, 1)", "[1, 2]", "over", "nan")
DRAWN = np.random.default_rng(0).standard_normal((3, 2 * STEPS, len(STATS)))
DRAWN[2, 7, STATS.index("std")] = np.nan
LOSS = np.linspace(2, 1, 2 * STEPS).astype("<f4")
COUNTS = np.random.default_rng(1).integers(0, 50, (2 * STEPS, 5))
ROWS = np.random.default_rng(3).standard_normal((40, 6)).astype("<f4")  # sample, feature
LABELS = np.arange(40, dtype="<i8") % 3
MAPS = np.random.default_rng(2).standard_normal((2, 3, 5, 7, 6)).astype("<f4")  # epoch, image, channel, y, x


def recorded(path: Path, shift: float) -> Path:
    """Two epochs of statistics of three layers, a histogram, feature maps and a loss; from the fourth step on shifted."""
    for epoch in range(2):
        recording = Recording(path, epoch, head={"global_step_start": {"train": STEPS * epoch}})
        for step in range(STEPS):
            at = STEPS * epoch + step
            for layer, target in enumerate(LAYERS):
                numbers = DRAWN[layer, at] + shift * (at > 3)
                key = SeriesKey("acts", target, "output", "train")
                recording.take(numbers, key=key, step=step, dims=("stat",), coords={"stat": list(STATS)})
            key = SeriesKey("spread", "h.0", "output", "train")
            recording.take(COUNTS[at], key=key, step=step, dims=("bin",), coords={"bin": list(BINS)})
            recording.take(np.array(LOSS[at]), key=SeriesKey("loop", "", "loop.loss", "train"), step=step)
            recording.take(np.array(0.5), key=SeriesKey("loop", "", "loop.lr.0", "train"), step=step)
        recording.take(MAPS[epoch], key=SeriesKey("maps", "stem", "output", "train"), dims=("image", "channel", "y", "x"))
        recording.take(ROWS, key=SeriesKey("rows", "h.2", "output", "eval"))
        recording.take(LABELS, key=SeriesKey("labels", "", "loop.labels", "eval"))
        recording.ids(0, [f"<i>{at}" for at in range(40)], "eval").sealed()
    return path


class Page:
    """A report in a browser."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser, self.path = browser, path
        load(browser, path)

    def run(self, script: str, *words: Any) -> Any:
        return self.browser.execute_script(f"return {script}", *words)

    def text(self, name: str) -> str:
        found: str = self.run("document.getElementById(arguments[0]).textContent", name)
        return found

    def choose(self, name: str, value: str) -> None:
        script = "const one = document.getElementById(arguments[0]); one.value = arguments[1]; one.dispatchEvent(new Event('change'))"
        self.browser.execute_script(script, name, value)

    def find(self, name: str) -> Any:
        return self.browser.find_element("id", name)

    def rows(self) -> list[str]:
        found: list[str] = self.run("view.lines.map(line => line.row.target)")
        return found

    def drawn(self, name: str, field: str, trace: int = 0) -> Any:
        return self.run("document.getElementById(arguments[0]).data[arguments[1]][arguments[2]]", name, trace, field)

    def errors(self) -> list[Any]:
        return [one for one in self.browser.get_log("browser") if one["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """The browser with an empty page, next to the one that other tests share."""
    before = browser.current_window_handle
    browser.switch_to.new_window("tab")
    yield browser
    browser.close()
    browser.switch_to.window(before)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    first, second = recorded(folder / "a", 0), recorded(folder / "b", 0.5)
    (folder / "page.html").write_text(report([first, second])[0], encoding="utf-8")
    return folder / "page.html"


@pytest.fixture(scope="module")
def loaded(browser: Any, written: Path) -> Page:
    return Page(browser, written)


@pytest.fixture
def page(loaded: Page) -> Page:
    """The page with the first of its two runs; loading it takes seconds, so that all tests share one, and no pointer is over it."""
    from selenium.webdriver.common.action_chains import ActionBuilder

    away = ActionBuilder(loaded.browser)
    away.pointer_action.move_to_location(1, 1)
    away.perform()
    loaded.browser.execute_script("Object.assign(state, {page: 0, row: 0, column: 0, kept: false, filter: ''}); filter.value = ''")
    for name, value in SHOWN_FIRST.items():
        loaded.choose(name, value)
    return loaded


def test_the_page_draws_without_an_error_and_asks_for_nothing(page: Page) -> None:
    assert page.errors() == []
    assert page.run("document.getElementById('status').hidden")
    assert page.run("performance.getEntriesByType('resource').filter(one => !/^(data|blob):/.test(one.name)).length") == 0


def test_the_heat_map_of_every_figure_shows_the_numbers_of_the_file(page: Page) -> None:
    for at, stat in enumerate(STATS):
        page.choose("figure", stat)
        shown = np.array(page.drawn("heat", "z"), float)
        assert np.array_equal(shown, DRAWN[:, :, at], equal_nan=True)
    assert page.drawn("heat", "x") == list(range(2 * STEPS))


def test_arrow_keys_walk_through_the_cells_and_the_numbers_are_those_of_the_file(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    box = page.find("heat-box")
    box.send_keys(Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_DOWN, *[Keys.ARROW_RIGHT] * 8)
    assert page.text("cell-name") == "h.2"
    assert page.text("cell-value").split() == ["std", f"{DRAWN[2, 8, STATS.index('std')]:.7g}"]
    assert page.text("cell-place") == "global step 8: epoch 1, step 2"
    box.send_keys(Keys.ARROW_LEFT)
    assert page.text("cell-value") == "std NaN"


def test_the_cell_that_is_clicked_stays_with_its_curve_and_its_histogram(page: Page) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    def over(row: int, column: int) -> Any:
        axes = "(({xaxis: x, yaxis: y}) => [x._offset + x.d2p(arguments[1]), y._offset + y.d2p(arguments[0])])(heat._fullLayout)"
        x, y = page.run(axes, row, column)
        width, height = page.run("(({width, height}) => [width, height])(heat.getBoundingClientRect())")
        return ActionChains(page.browser).move_to_element_with_offset(page.find("heat"), int(x - width / 2), int(y - height / 2))

    page.browser.execute_script("document.getElementById('heat-box').scrollIntoView({block: 'center'})")
    over(2, 3).perform()
    wait(page.browser, "document.getElementById('cell-name').textContent === 'h.2'")
    over(0, 5).click().perform()
    wait(page.browser, "state.kept && document.getElementById('cell-name').textContent === 'h.0'")
    over(2, 1).perform()
    assert page.text("cell-name") == "h.0"
    assert page.drawn("curve", "y", 0) == DRAWN[0, :, STATS.index("std")].tolist()
    assert page.drawn("bars", "y") == COUNTS[5].tolist()
    assert page.text("bars-place") == "Elements by bin of spread (output), global step 5: epoch 0, step 5."
    page.find("heat-box").send_keys(Keys.ESCAPE)
    over(2, 4).perform()
    wait(page.browser, "document.getElementById('cell-name').textContent === 'h.2'")


def test_the_loss_is_drawn_over_the_same_steps(page: Page) -> None:
    assert np.array_equal(np.array(page.drawn("loops", "y")).astype("<f4"), LOSS)
    assert page.drawn("loops", "x") == page.drawn("heat", "x")
    assert page.run("new Set(loops.data.map((one) => one.yaxis)).size") == 1
    assert page.text("constants") == "Constant: lr.0 = 0.5."


def test_filter_and_order_do_what_they_say(page: Page) -> None:
    page.find("filter").send_keys("H*.2")
    assert page.rows() == ["h.2"]
    page.find("filter").clear()
    page.find("filter").send_keys("=h.0")
    assert page.rows() == ["h.0"]
    page.find("filter").clear()
    page.find("filter").send_keys("nothing")
    assert page.text("page") == "no row has this name and figure"
    page.browser.execute_script("filter.value = ''; filter.dispatchEvent(new Event('input'))")
    page.choose("order", "odd")
    assert page.rows()[0] == "h.2"


def test_the_button_of_a_module_shows_its_rows(page: Page) -> None:
    page.browser.execute_script("document.querySelector('button[data-show=\"stem\"]').click()")
    assert page.rows() == ["stem"]
    assert page.run("JSON.parse(state.group)[0]") == "maps"


def test_pictures_show_the_values_of_their_capture(page: Page) -> None:
    page.choose(
        "picture-series",
        page.run("[...document.querySelectorAll('#picture-series option')].find(one => one.textContent.includes('maps')).value"),
    )
    for shot in range(2):
        page.browser.execute_script("shot.value = arguments[0]; shot.dispatchEvent(new Event('input'))", shot)
        cells = np.array([[np.nan if one is None else one for one in row] for row in page.drawn("picture", "z")])
        rows, columns = MAPS.shape[-2:]
        across = (cells.shape[1] + 1) // (columns + 1)
        for channel in range(5):
            top, left = channel // across * (rows + 1), channel % across * (columns + 1)
            assert np.array_equal(cells[top : top + rows, left : left + columns].astype("<f4"), MAPS[shot, 0, channel])
        assert f"global step {STEPS * shot}" in page.text("picture-about")


def test_samples_are_points_with_the_color_of_their_label(page: Page) -> None:
    option = "[...document.querySelectorAll('#picture-series option')].find(one => one.textContent.includes(arguments[0])).value"
    page.choose("picture-series", page.run(option, "rows/h.2:output@eval (samples)"))
    made = page.run("picked.one")
    for label in range(3):
        assert page.drawn("picture", "x", label) == np.array(made["x"])[label == LABELS].tolist()
        assert page.drawn("picture", "name", label) == str(label)
    assert "40 of the 40 rows of epoch 1" in page.text("picture-about")
    assert page.run("picked.say({customdata: 5})").startswith("sample <i>5; loop.labels 2; global step")
    assert page.errors() == []


def test_drawings_keep_their_place_when_the_window_changes(page: Page) -> None:
    """A box without a height of its own lets the drawing lie over the text below it."""
    emulate = page.browser.execute_cdp_cmd
    fits = (
        "['heat', 'curve', 'loops', 'picture', 'bars'].every((id) => { const box = document.getElementById(id).getBoundingClientRect();"
        " const drawn = document.querySelector('#' + id + ' .main-svg').getBoundingClientRect();"
        " return Math.abs(drawn.height - box.height) < 2 && Math.abs(drawn.width - box.width) < 2; })"
    )
    try:
        for width in (700, 380, 1200):
            emulate("Emulation.setDeviceMetricsOverride", {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False})
            wait(page.browser, f"innerWidth === {width} && {fits}", 20)
    finally:
        emulate("Emulation.clearDeviceMetricsOverride", {})


def test_names_of_an_unknown_author_stay_text(page: Page) -> None:
    page.browser.execute_script("Object.assign(state, {row: 1}); showCell()")
    assert page.run("window.stolen") is None
    assert page.text("cell-name") == EVIL.replace("\u202e", "\\u202e")
    assert page.run("document.querySelectorAll('img, body b b, #heat b, #heat a').length") == 0
    assert "</script><script" in page.run("document.querySelector('#heat .yaxislayer-above').textContent")
    assert page.errors() == []


def test_dark_narrow_and_printed_pages_are_readable(page: Page) -> None:
    emulate = page.browser.execute_cdp_cmd
    try:
        light = page.run("getComputedStyle(document.body).backgroundColor")
        emulate("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        assert page.run("getComputedStyle(document.body).backgroundColor") != light
        wait(page.browser, "document.getElementById('heat').layout.font.color === color('ink')")
        emulate("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True})
        wait(page.browser, "innerWidth === 360 && document.documentElement.scrollWidth <= 360")
        emulate("Emulation.setEmulatedMedia", {"media": "print", "features": []})
        assert page.run("getComputedStyle(document.getElementById('choices')).display") == "none"
    finally:
        emulate("Emulation.setEmulatedMedia", {"media": "", "features": []})
        emulate("Emulation.clearDeviceMetricsOverride", {})


def test_two_runs_are_drawn_side_by_side_and_separately(page: Page) -> None:
    page.choose("run", "difference")
    page.choose("figure", "mean")
    apart = np.array(page.drawn("heat", "z"), float)
    first = DRAWN[:, :, STATS.index("mean")]
    second = first + 0.5 * (np.arange(2 * STEPS) > 3)
    assert np.allclose(apart, np.abs(second - first) / np.maximum(np.abs(first), np.abs(second)), rtol=1e-12, atol=0)
    assert [page.drawn("curve", "y", run) for run in range(2)] == [first[0].tolist(), second[0].tolist()]
    assert page.text("partings") == "All 3 series that differ do so first at global step 4."


def test_ranks_are_an_axis_of_the_page(tab: Any, tmp_path: Path) -> None:
    numbers = np.arange(12.0).reshape(2, 6)  # rank, step
    for rank in (0, 1):
        recording = Recording(tmp_path / "run", rank=rank)
        for step in range(6):
            recording.take(numbers[rank, step], key=SeriesKey("norms", "h.0", "output", "train"), step=step)
            recording.take(numbers[rank, step] + 1, key=SeriesKey("loop", "", "loop.loss", "train"), step=step)
            recording.take(np.full((4, 4), rank), key=SeriesKey("maps", "h.0", "output", "train"), step=step)
        recording.sealed()
    (tmp_path / "page.html").write_text(report([tmp_path / "run"])[0], encoding="utf-8")
    page = Page(tab, tmp_path / "page.html")
    page.choose("group", '["norms","output","train"]')
    assert np.array_equal(np.array(page.drawn("heat", "z"), float), numbers)
    assert page.run("view.lines.map(rowName => rowName.name)") == ["h.0 (rank 0)", "h.0 (rank 1)"]
    assert [page.drawn("loops", "y", at) for at in (0, 1)] == (numbers + 1).tolist(), "one panel, a line for each rank"
    page.choose("rank", "1")
    assert np.array_equal(np.array(page.drawn("heat", "z"), float), numbers[1:])
    listed = page.run("[...document.getElementById('picture-series').options].map(one => one.textContent)")
    assert listed[:2] == [f"maps/h.0:output (rank {rank}, picture)" for rank in (0, 1)]
    assert page.errors() == []

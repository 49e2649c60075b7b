"""The page in a real browser, on a phone, on a desk and in print."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, moonfed

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(headless=True, executable_path=CHROMIUM)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    few = [*QUICK, "--rounds", "3", "--seeds", "0,1"]
    assert moonfed("compare", "fedavg", "moon:mu=0.5", "solo", *few, "--out", folder / "runs").code == 0
    shutil.copytree(folder / "runs" / "solo" / "seed-0", folder / "runs" / ("long-" * 30) / "unbroken" / ("x" * 120))
    shutil.rmtree(folder / "runs" / "solo")
    path = folder / "page.html"
    assert moonfed("report", folder / "runs", "-o", path, "--tsne", "60").code == 0
    return path


@pytest.fixture(scope="module")
def made_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("again")
    assert moonfed("reproduce", "table2", "fig2", "fig5", "--scale", "smoke", "--out", folder).code == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 108 trials: copies of three runs that say they had other seeds, splits and epochs."""
    folder = tmp_path_factory.mktemp("hundred")
    methods = ("fedavg", "fedprox", "moon")
    assert moonfed("compare", *methods, *QUICK, "--rounds", "4", "--seeds", "0", "--out", folder / "one").code == 0
    grid = itertools.product(methods, (0.1, 0.3, 0.5, 1.0, 5.0, 10.0), (1, 2), range(3))
    for place, (method, beta, epochs, seed) in enumerate(grid):
        copy = folder / "runs" / str(place)
        shutil.copytree(folder / "one" / method / "seed-0", copy)
        there = json.loads((copy / "config.json").read_text())
        there["config"]["data"] |= {"beta": beta, "partition_seed": seed, "floor": 2}
        there["config"]["train"] |= {"epochs": epochs}
        there["config"]["run"] |= {"seed": seed}
        (copy / "config.json").write_text(json.dumps(there))
        log = [json.loads(line) for line in (copy / "rounds.jsonl").read_text().splitlines()]
        changed = [row | {"accuracy": row["accuracy"] * (1 - 0.01 * (place % 7))} for row in log]
        (copy / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    path = folder / "page.html"
    assert moonfed("report", folder / "runs", "-o", path).code == 0
    return path


@pytest.mark.parametrize(("width", "height", "most"), [(1200, 900, 3500), (390, 844, 5000)])
def test_a_page_of_a_hundred_trials_opens_with_its_summary_and_is_short(width, height, most, browser, hundred):
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(hundred.as_uri())
    assert "108 trials" in page.text_content(".intro")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollHeight") <= most
    places = "[...document.querySelector('.table tbody').rows].map(r => r.getBoundingClientRect().bottom)"
    rows = page.evaluate(places)
    assert len(rows) == 12 + 36, "a heading for each group, a row for each of its methods"
    assert sum(bottom <= height for bottom in rows) >= 8, "two groups at least are seen at once"
    shown = "[...document.querySelector('.table tbody').rows].map(r => r.cells[0].getBoundingClientRect().left)"
    before = page.evaluate(shown)
    page.evaluate("document.querySelector('.scroll').scrollLeft = 150")
    assert page.evaluate(shown)[1:4] == before[1:4], "the methods stay in sight"
    page.close()


def test_the_name_of_a_group_opens_its_details(browser, hundred):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(hundred.as_uri())
    is_open = "document.querySelector('#group3').closest('details').open"
    assert not page.evaluate(is_open)
    page.click("a[href='#group3']")
    assert page.evaluate(is_open)
    page.close()


def test_a_page_of_a_hundred_trials_is_small_and_names_groups_by_what_differs(hundred):
    text = hundred.read_text()
    assert len(text) < 1_800_000
    names = re.findall(r'<a href="#group\d+">(.*?)</a>', text)
    assert names[:3] == ["beta 0.1, 1 local epoch", "beta 0.1, 2 local epochs", "beta 0.3, 1 local epoch"]
    assert len(names) == len(set(names)) == 12
    assert "t-SNE of the features of 36 final models is not plotted" in text
    assert max(len(name) for name in re.findall(r"<nav.*?</nav>", text)[0].split("</a>")) < 60


@pytest.mark.parametrize("which", ["page_file", "made_again"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_opens_without_errors_and_scrolls_downwards_only(width, which, browser, request):
    page_file = request.getfixturevalue(which)
    page = browser.new_page(viewport={"width": width, "height": 800})
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(page_file.as_uri())
    for state in ("folded", "unfolded"):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, state
        wide = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        assert page.evaluate(f"{wide}.filter(e => !e.closest('svg, .scroll *')).map(e => e.outerHTML)") == []
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 150)")
    assert heard == []
    page.close()


def test_print_shows_what_is_folded_on_the_screen(browser, page_file):
    page = browser.new_page(viewport={"width": 700, "height": 1000})
    page.goto(page_file.as_uri())
    heights = "[...document.querySelectorAll('details')].map(d => d.getBoundingClientRect().height)"
    folded = page.evaluate(heights)
    page.emulate_media(media="print")
    assert all(now > 2 * before for now, before in zip(page.evaluate(heights), folded, strict=True))
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    page.close()

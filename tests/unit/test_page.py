"""The page in a real browser, on a phone, on a desk and in print."""

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
        assert (
            page.evaluate(f"{wide}.filter(e => !e.closest('svg') && !e.closest('thead')).map(e => e.outerHTML)") == []
        )
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

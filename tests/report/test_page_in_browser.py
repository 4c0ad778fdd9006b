"""The page in a real browser: the slider moves, nothing complains, nothing leaves; both widths, light and dark."""

import re

import pytest

from atlasd.report.html import Section, write_page

from .browser import PROGRAM, Browser
from .test_html import EVIL

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no browser; get one by: apt-get install chromium")

_X = (
    "[...document.querySelector('.track:not([hidden])').querySelectorAll('image')].map(i => i.getAttribute('x')).join()"
)
_WORDS = "document.querySelector('.track:not([hidden]) output').textContent"
_SLIDER = "document.querySelector('.track:not([hidden]) input[type=range]')"


@pytest.fixture(scope="module")
def page(discovery, fields, tmp_path_factory):
    content = discovery.to_dict(EVIL, command=EVIL, config={EVIL: EVIL}, metrics={"rows": [{"model": EVIL}]})
    path = tmp_path_factory.mktemp("browser") / "report.html"
    return write_page(path, [Section(discovery, content, fields, EVIL), Section(discovery)])


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture(autouse=True)
def clean(browser, page):
    yield
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [page.as_uri()]


def _set(browser, value):
    browser.run(f"(s => {{ s.value = {value}; s.dispatchEvent(new Event('input')); }})({_SLIDER})")


def test_slider_moves_pictures_words_marker_and_matrix(browser, page):
    browser.open(page)
    _set(browser, 0)
    before = [browser.run(code) for code in (_X, _WORDS, "document.querySelector('.now td').textContent")]
    marker = browser.run("document.querySelector('.marker').getAttribute('x1')")
    _set(browser, 6)
    after = [browser.run(code) for code in (_X, _WORDS, "document.querySelector('.now td').textContent")]
    assert before[0] == "0,0,0,0" and after[0] == "-72,-72,-72,-72"
    assert (
        before[1].startswith("t = -1.50: not measured")
        and after[1] == "t = 1.50: strength of the breaking 10.0 %; coverage 100 %"
    )
    assert before[2] == after[2] == "0.07"  # the cosine is even, its neighbour is not
    assert marker != browser.run("document.querySelector('.marker').getAttribute('x1')")
    assert browser.run(f"{_SLIDER}.getAttribute('aria-valuetext')") == after[1]


def test_keyboard(browser, page):
    browser.open(page)
    browser.run(f"{_SLIDER}.focus()")
    _set(browser, 2)
    browser.page.keyboard.press("ArrowRight")
    assert browser.run(f"{_SLIDER}.value") == "3" and browser.run(_WORDS) == "t = 0.00: the identity"
    outline = browser.run(f"getComputedStyle({_SLIDER}).outlineStyle")
    assert outline == "solid"  # the focus can be seen
    browser.run("document.querySelector('.slider input[type=radio]').focus()")
    browser.page.keyboard.press("ArrowDown")
    assert browser.run("document.querySelectorAll('.slider input[type=radio]')[1].checked")
    named = browser.run("document.querySelector('.track:not([hidden])').getAttribute('aria-label')")
    assert named.startswith("the 2 cosets")


def test_points_of_vectors_move(browser, page):
    browser.open(page)
    browser.run("document.querySelectorAll('.slider input[type=radio]')[1].click()")
    code = "[...document.querySelectorAll('.track:not([hidden]) circle')].map(c => c.getAttribute('cx')).join()"
    before = browser.run(code)
    _set(browser, 0)
    assert browser.run(code) != before


def test_play_and_stop(browser, page):
    browser.open(page)
    start = browser.run(f"{_SLIDER}.value")
    moved = f"{_SLIDER}.value !== '{start}'"
    wait = f"new Promise(r => {{ const t = setInterval(() => {moved} && (clearInterval(t), r(true)), 20); }})"
    browser.run("document.querySelector('.track:not([hidden]) button').click()")
    assert browser.run(wait)
    browser.run("document.querySelector('.track:not([hidden]) button').click()")
    assert browser.run("document.querySelector('.track:not([hidden]) button').textContent") == "Play"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_widths_and_schemes(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    ink, paper = (browser.run(f"getComputedStyle(document.body).{key}") for key in ("color", "backgroundColor"))
    ink, paper = (sum(int(n) for n in re.findall(r"\d+", colour)[:3]) for colour in (ink, paper))
    assert (ink - paper > 400) if dark else (paper - ink > 400)
    boxes = "filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())"
    assert browser.run(f"[...document.querySelectorAll('svg, img')].{boxes}.every(b => b.width > 20)")
    # Labels can be read on a phone.
    assert browser.run(f"Math.min(...[...document.querySelectorAll('.plot text')].{boxes}.map(b => b.height))") > 8


def test_the_verdict_is_whole_on_a_phone(browser, page):
    browser.open(page, width=420)
    assert browser.run(
        "[...document.querySelectorAll('.verdict')].every(t => t.parentNode.scrollWidth <= t.parentNode.clientWidth)"
    )
    cells = "[...document.querySelectorAll('.verdict tbody td, .verdict tbody th')].map(e => e.getBoundingClientRect())"
    assert browser.run(f"{cells}.every(b => b.width > 0 && b.left >= 0 && b.right <= 420)")
    shown = browser.run("document.querySelector('.verdict').innerText")
    assert "3.1 % (0.4 to 3.9 %)" in shown and "Other transformations that were judged" in shown


def test_on_paper_it_is_light_and_without_controls(browser, page):
    browser.open(page, dark=True)
    before = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.page.emulate_media(media="print")
    assert before != browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not browser.run("document.querySelector('.drive').checkVisibility()")


def test_without_script_everything_is_there(browser, page):
    browser.open(page, script=False)
    tracks = browser.page.locator(".track")
    assert [tracks.nth(k).is_visible() for k in range(tracks.count())] == [True] * 6


def test_no_script_of_others_can_run(browser, page):
    browser.open(page)
    add = "const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s);"
    ran = f"(() => {{ {add} return window.evil; }})()"
    assert browser.run(ran) is None
    # The control of all other tests here: what the browser holds against a page is seen.
    assert "Content Security Policy" in " ".join(browser.errors)
    browser.errors.clear()

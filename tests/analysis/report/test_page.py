"""Pages: whole in themselves, and nothing in them is taken for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np

from teeter.analysis.plots import pca_2d, plot_curves, plot_picks
from teeter.analysis.report.page import page, picture, section, table


class Balanced(HTMLParser):
    """Checks that every element that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_fetches_nothing() -> None:
    figure = plot_curves(np.array([10.0, 20.0]), {"ldm-s": np.array([[0.1, 0.5], [0.2, 0.6]])})
    text = page("T", "lead", [section("S", "text", picture(figure, "curves"), table([{"a": "1"}]))], {"teeter": "1"})
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http" not in text.replace("http://www.w3.org", "")


def test_text_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    text = page(evil, evil, [section(evil, evil, table([{evil: evil}]))], {evil: evil})
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") == 9


def test_the_plane_keeps_the_largest_variances() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 6)) * [1, 5, 1, 1, 10, 1] + 3
    flat = pca_2d(features)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-9)
    assert abs(np.corrcoef(flat[:, 0], features[:, 4])[0, 1]) > 0.99
    assert abs(np.corrcoef(flat[:, 1], features[:, 1])[0, 1]) > 0.99


def test_pictures_show_every_pick() -> None:
    rng = np.random.default_rng(0)
    figure = plot_picks(rng.normal(size=(50, 2)), rng.uniform(0.01, 1, 50), np.arange(7), rng.normal(size=(7, 8, 8)))
    whole, side = figure.subfigs
    assert len(whole.axes[0].collections[1].get_offsets()) == 7
    assert sum(bool(cell.images) for cell in side.axes) == 7

"""The site of `make docs`: it shows what the documents say, all links lead somewhere, and it needs no network."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("*.md", "docs/*.md", "benchmarks/*.md", "src/townlet/lessons/*/README.md")
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern))
CONTENT = ("h1", "h2", "h3", "ul", "ol", "li", "pre", "table", "th", "img", "em", "strong", "blockquote")
CHROMIUM = shutil.which("chromium")


class Html(HTMLParser):
    """What a page links to and loads, its anchors, and the elements and the text of its article."""

    def __init__(self, text: str, is_page: bool = True) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.elements: Counter[str] = Counter()
        self.text = ""
        self._in_article = not is_page
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.loaded.append(values["href"])
        self.loaded += [values[name] for name in ("src", "poster", "data") if name in values]
        self.loaded += re.findall(r"url\((.+?)\)", values.get("style", ""))
        self._in_article |= tag == "article"
        if self._in_article and tag in CONTENT:
            self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"

    def handle_data(self, data: str) -> None:
        if self._in_article:
            self.text += re.sub(r"[\s¶]", "", data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "tools/docs/mkdocs.yml", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Html]:
    """All pages, by path relative to the site."""
    found = {path.relative_to(site).as_posix(): Html(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    # The server returns this page at any address, so its links start at the root of a server.
    return {name: html for name, html in found.items() if name != "404.html"}


def page_of(document: str) -> str:
    name = document.removeprefix("src/townlet/").removesuffix(".md")
    return posixpath.join(posixpath.dirname(name), "index.html") if name.endswith("README") else f"{name}.html"


def broken_links(site: Path, pages: dict[str, Html]) -> Iterator[str]:
    for name, html in pages.items():
        for link in (*html.links, *html.loaded):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(address.path)))
            target = target if address.path else name
            anchor = unquote(address.fragment)
            if not (site / target).is_file() or (anchor and anchor not in pages[target].anchors):
                yield f"{name}: {link}"


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(site: Path, pages: dict[str, Html]) -> None:
    assert sum(len(html.links) for html in pages.values()) > 1000
    assert list(broken_links(site, pages)) == []


def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[str, Html]) -> None:
    loaded = {(name, link) for name, html in pages.items() for link in html.loaded}
    assert len(loaded) > 100
    assert [(name, link) for name, link in loaded if not urlsplit(link).path or urlsplit(link).netloc] == []
    styles = [link for path in site.rglob("*.css") for link in re.findall(r"url\(([^)]+)\)", path.read_text("utf-8"))]
    assert [link for link in styles if not re.match(r"[\"']?(data:|#)", link) and "//" in link] == []


def test_the_site_shows_every_document_as_github_does(pages: dict[str, Html]) -> None:
    github = MarkdownIt("commonmark", {"html": True}).enable("table")
    assert len(DOCUMENTS) > 15
    for document in DOCUMENTS:
        expected = Html(github.render((ROOT / document).read_text(encoding="utf-8")), is_page=False)
        page = pages[page_of(document)]
        assert page.elements == expected.elements, document
        assert page.text.startswith(expected.text), document


def test_the_reference_describes_the_whole_python_api(pages: dict[str, Html]) -> None:
    import townlet

    functions = [name for name in townlet.__all__ if name not in ("IDS", "__version__", "train")]
    assert {f"townlet.{name}" for name in functions} <= pages["api.html"].anchors
    assert "Trainanagentfromscratchandreturntherun" in pages["api.html"].text


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_site_can_be_read_and_searched_from_disk_without_network(site: Path) -> None:
    requests, errors = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").press_sequentially("hyperparameter")
        page.locator(".md-search-result__link", has_text="Hyperparameter search").first.click()
        page.wait_for_url("**/docs/tuning.html*")
        assert page.locator("article img, article h1").first.is_visible()
        browser.close()
    assert errors == []
    assert len(requests) > 5
    assert [url for url in requests if not url.startswith(site.as_uri()) and urlsplit(url).scheme != "data"] == []

"""What `python -m docs.playground` writes, and what it says without its compiler."""

import pytest

from docs.playground import __main__ as command
from docs.playground import build


def test_page_links_to_the_site_only_where_it_is_part_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "compiled_kernel", lambda: b"")
    alone, beside = tmp_path / "alone/playground.html", tmp_path / "site/playground.html"
    beside.parent.mkdir()
    beside.with_name("index.html").touch()
    for output in (alone, beside):
        build.build(output)
    assert "index.html" not in alone.read_text(encoding="utf-8")
    assert 'href="docs/index.html"' in beside.read_text(encoding="utf-8")


def test_page_asks_for_nothing_from_elsewhere(monkeypatch):
    text = build.page(b"", in_site=False)
    assert "{{" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_compiler_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"error: .*not installed: pip install ziglang$"):
        command.main(["--output", str(tmp_path / "playground.html")])
    assert not list(tmp_path.iterdir())

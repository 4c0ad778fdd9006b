"""Parts that are done are not done again."""

import pytest

from atlasd.runtime.checkpoint import Checkpoint


def fail():
    raise RuntimeError("done again")


def test_parts_are_kept(tmp_path):
    place = tmp_path / "kept"
    first = Checkpoint(place, "work")
    assert not Checkpoint.stands(place) and first.do("a", lambda: {"x": [1, 2.5]}) == {"x": [1, 2.5]}
    with pytest.raises(RuntimeError):
        first.do("b", fail)
    second = Checkpoint(place, "work")
    assert Checkpoint.stands(place) and "a" in second and "b" not in second
    assert second.do("a", fail) == {"x": [1, 2.5]} and second.do("b", lambda: 3) == 3
    second.remove()
    assert not place.exists() and "a" not in second


@pytest.mark.parametrize("content", ["", "{", "[]", '{"title": "work", "parts": 3}', '{"title": "other", "parts": {}}'])
def test_what_cannot_be_used_is_dropped(tmp_path, content):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "parts.json").write_text(content)
    assert Checkpoint(tmp_path / "kept", "work").do("a", lambda: 1) == 1
    assert Checkpoint(tmp_path / "kept", "work").do("a", fail) == 1


def test_nothing_is_kept_without_a_directory():
    kept = Checkpoint()
    assert kept.do("a", lambda: 1) == 1 and kept.do("a", fail) == 1
    kept.remove()

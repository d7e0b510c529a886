"""Cached values: computed once per version, for each object."""

from __future__ import annotations

from teeter.campaigns.store import cached_by


class Counter:
    """Counts how often its values are computed."""

    def __init__(self) -> None:
        self.version = 1
        self.computed: list[str] = []

    @cached_by(lambda counter, name: (counter.version, name))
    def describe(self, name: str) -> str:
        """Say hello."""
        self.computed.append(name)
        return f"{name} {self.version}"

    @cached_by(lambda counter: counter.version)
    def find_none(self) -> None:
        self.computed.append("none")


def test_a_value_is_computed_again_when_its_version_changes() -> None:
    counter = Counter()
    assert [counter.describe("a"), counter.describe("a")] == ["a 1", "a 1"]
    counter.version = 2
    assert counter.describe("a") == "a 2"
    assert counter.computed == ["a", "a"]


def test_a_value_that_is_none_is_cached_too() -> None:
    counter = Counter()
    counter.find_none()
    counter.find_none()
    assert counter.computed == ["none"]


def test_objects_do_not_share_values() -> None:
    first = Counter()
    second = Counter()
    second.version = 5
    assert [first.describe("a"), second.describe("a"), first.describe("a")] == ["a 1", "a 5", "a 1"]


def test_the_documentation_of_a_method_stays() -> None:
    assert Counter.describe.__doc__ == "Say hello."

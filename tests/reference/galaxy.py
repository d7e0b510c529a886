"""GALAXY's graph by its definition: neighbours on a line, and shortest paths step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def neighbours(signs: Sequence[int], order: int) -> list[list[int]]:
    """The places up to ``order`` apart, without edges between a class and the rest."""

    def is_edge(i: int, j: int) -> bool:
        return i != j and abs(i - j) <= order and signs[i] * signs[j] != -1

    places = range(len(signs))
    return [[j for j in places if is_edge(i, j)] for i in places]


def steps_from(sources: Sequence[int], signs: Sequence[int], order: int) -> list[float]:
    """The steps from the nearest source to each place, by breadth-first search.

    A labelled place ends a path.
    """
    edges = neighbours(signs, order)
    steps = [float("inf")] * len(signs)
    queue = deque(sources)
    for source in sources:
        steps[source] = 0
    while queue:
        place = queue.popleft()
        if signs[place] != 0 and steps[place] > 0:
            continue
        for neighbour in edges[place]:
            if steps[neighbour] == float("inf"):
                steps[neighbour] = steps[place] + 1
                queue.append(neighbour)
    return steps


def middles(signs: Sequence[int], order: int) -> set[int]:
    """The middle of every shortest path between the class (1) and the rest (-1).

    A path of L steps has L + 1 places, and its middle is the place (L + 1) // 2 from the rest.
    """
    inside = [place for place, sign in enumerate(signs) if sign == 1]
    outside = [place for place, sign in enumerate(signs) if sign == -1]
    from_inside = steps_from(inside, signs, order)
    from_outside = steps_from(outside, signs, order)
    lengths = [from_inside[place] for place in outside]
    if not lengths or min(lengths) == float("inf"):
        return set()

    length = int(min(lengths))
    return {
        place
        for place, sign in enumerate(signs)
        if sign == 0
        and from_outside[place] == (length + 1) // 2
        and from_inside[place] == length - (length + 1) // 2
    }

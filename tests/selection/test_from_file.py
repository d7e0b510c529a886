"""Picks from files: which rows, and how they are described."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import teeter
from teeter.errors import InputError, MissingOutputError
from teeter.models.sklearn_model import fit_head
from teeter.selection import Selection, from_file, select_from_file
from teeter.strategies import Context, Strategy, TopKStrategy
from teeter.strategies.base import registry

LABELLED = "size,kind\n-2,no\n2,yes\n1,\n0.1,\n-1.5,\n-0.5,\n"
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, so that sentences hold short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(text: str) -> str:
    Path("pool.csv").write_text(text, encoding="utf-8")
    return "pool.csv"


def column(picks: Selection, name: str) -> list[Any]:
    return [getattr(pick, name) for pick in picks.picks]


def test_a_table_is_picked_by_a_head_fitted_to_its_labelled_rows(folder: Path) -> None:
    picks = select_from_file(table(LABELLED), labels="kind", strategy="margin", n=4)
    assert column(picks, "row") == [3, 5, 2, 4]
    assert column(picks, "id") == ["3", "5", "2", "4"]
    assert column(picks, "predicted") == ["yes", "no", "yes", "no"]
    assert column(picks, "rank") == [1, 2, 3, 4]
    assert column(picks, "ldm")[:2] == [0.25, 0.25]
    facts = picks.provenance
    assert (facts.candidates, facts.labelled, facts.classes) == (4, 2, ("no", "yes"))


def test_the_margins_are_those_of_the_fitted_head(folder: Path) -> None:
    picks = select_from_file(table(LABELLED), labels="kind", strategy="entropy", n=2)
    sizes = np.array([-2, 2, 1, 0.1, -1.5, -0.5])
    scaled = ((sizes - sizes.mean()) / sizes.std())[:, None].astype(np.float32)
    weight, bias = fit_head(scaled[:2], np.array([0, 1]), 2)
    logits = (scaled @ weight.T + bias)[:, 1]
    assert column(picks, "margin") == pytest.approx(np.abs(np.tanh(logits / 2))[[3, 5]], abs=1e-6)
    p = 1 / (1 + np.exp(-logits[[3, 5]]))
    assert column(picks, "score") == pytest.approx(
        -p * np.log(p) - (1 - p) * np.log(1 - p), abs=1e-6
    )


def test_picks_are_those_of_teeter_select(folder: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(80, 4))
    weight = generator.normal(size=(3, 4))
    bias = generator.normal(size=3)

    np.savez("pool.npz", features=features)
    np.savez("head.npz", weight=weight, bias=bias, classes=["a", "b", "c"])
    outputs = teeter.Outputs(features=features, weight=weight, bias=bias)

    for name in ("ldm-s", "ldm", "margin", "entropy", "random", "seeding-cosine", "seeding-l2"):
        picks = select_from_file(
            "pool.npz", head="head.npz", strategy=name, n=9, seed=5, device="cpu"
        )
        rows = teeter.select(name, outputs, 9, seed=5, device="cpu")
        assert column(picks, "row") == rows.tolist()

        logits = features[rows] @ weight.T + bias
        assert column(picks, "predicted") == ["abc"[k] for k in logits.argmax(axis=1)]
        assert None not in column(picks, "ldm")


def test_the_ldm_is_computed_once_and_the_strategy_s_own_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to_compute(*_: object, **__: object) -> Tensor:
        raise AssertionError("computed twice")

    monkeypatch.setattr(from_file, "ldm", refuse_to_compute)
    path = table(LABELLED)
    picks = select_from_file(path, labels="kind", strategy="ldm", n=4)
    assert column(picks, "ldm") == sorted(column(picks, "ldm"))
    assert column(picks, "score") == [None] * 4
    with pytest.raises(AssertionError, match="computed twice"):
        select_from_file(path, labels="kind", strategy="margin", n=4)


def test_rays_serve_the_strategy_or_else_the_ldm_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(LABELLED)
    assert select_from_file(path, labels="kind", n=1, rays=7).provenance.options == {"rays": 7}
    requested_rays: list[Any] = []

    def note_rays(*arguments: Any, rays: int | None, **options: Any) -> Any:
        requested_rays.append(rays)
        return teeter.ldm(*arguments, rays=rays, **options)

    monkeypatch.setattr(from_file, "ldm", note_rays)
    assert (
        select_from_file(path, labels="kind", n=1, rays=7, strategy="margin").provenance.options
        == {}
    )
    assert requested_rays == [7]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Strategy]], str]:
    """File a strategy under a name, for one test."""
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))

    def file(cls: type[Strategy]) -> str:
        registry.register("mine")(cls)
        return "mine"

    return file


def test_the_labelled_rows_are_handed_to_the_strategy(
    folder: Path, registered: Callable[..., str]
) -> None:
    seen: list[Context] = []

    class Looks(Strategy):
        """The first rows."""

        needs = frozenset({"labelled", "logits"})

        def choose(self, context: Context, n: int) -> Tensor:
            seen.append(context)
            return torch.arange(n)

    select_from_file(table(LABELLED), labels="kind", strategy=registered(Looks), n=1)
    (context,) = seen
    assert context.labels is not None
    assert context.labels.tolist() == [0, 1]
    assert context.labelled is not None
    assert context.labelled.logits is not None
    assert context.labelled.logits.argmax(dim=1).tolist() == [0, 1]
    np.savez("pool.npz", features=np.ones((3, 2)), weight=np.eye(2))
    with pytest.raises(MissingOutputError, match=r"mine needs labelled rows: pass a table"):
        select_from_file("pool.npz", strategy="mine", n=1)


def test_the_scores_shown_are_those_that_were_picked_by(
    folder: Path, registered: Callable[..., str]
) -> None:
    class Lottery(TopKStrategy):
        """Rows of the largest ticket."""

        needs = frozenset({"features"})
        best: ClassVar[Literal["largest"]] = "largest"

        def score(self, context: Context) -> Tensor:
            return torch.rand(len(context), generator=context.generator)

    np.save("pool.npy", np.ones((50, 2)))
    tickets = column(select_from_file("pool.npy", strategy=registered(Lottery), n=50), "score")
    assert tickets == sorted(tickets, reverse=True)
    assert len(set(tickets)) == 50


@pytest.mark.parametrize("text", ["x,y\n1,\n5,\n2,NA\n", "x,y\n1,a\n5,\n2,\n4,a\n"])
@pytest.mark.parametrize("strategy", ["random", "seeding-l2", "seeding-cosine"])
def test_without_two_classes_some_strategies_still_pick(
    folder: Path, text: str, strategy: str
) -> None:
    picks = select_from_file(table(text), labels="y", strategy=strategy, n=2)
    assert set(column(picks, "row")) <= {0, 1, 2} - ({0} if "a" in text else set())
    assert (
        column(picks, "ldm")
        == column(picks, "predicted")
        == column(picks, "margin")
        == [None, None]
    )


def test_random_needs_neither_labels_nor_usable_columns(folder: Path) -> None:
    picks = select_from_file(table("id,title\np,one\nq,two\nr,three\n"), strategy="random", n=3)
    assert sorted(column(picks, "id")) == ["p", "q", "r"]
    assert picks.provenance.notes == ("Left out because they hold free text: title.",)


def test_a_table_under_a_head_is_taken_as_it_stands(folder: Path) -> None:
    np.savez("head.npz", weight=[[1.0, 0.0]], bias=[-100.0])
    picks = select_from_file(
        table("id,a,b\np,90,1\nq,101,2\nr,150,3\n"), head="head.npz", strategy="margin", n=3
    )
    assert column(picks, "id") == ["q", "p", "r"]
    assert column(picks, "predicted") == ["1", "0", "1"]


def test_embeddings_with_labels_in_parquet(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    features = [[-2.0, 1.0], [2.0, 1.0], [0.1, 1.0], [1.5, 1.0]]
    parquet.write_table(
        pyarrow.table({"features": features, "y": ["no", "yes", None, None]}), "pool.parquet"
    )
    assert column(select_from_file("pool.parquet", labels="y", strategy="margin", n=2), "row") == [
        2,
        3,
    ]
    assert sorted(column(select_from_file("pool.parquet", strategy="seeding-l2", n=4), "row")) == [
        0,
        1,
        2,
        3,
    ]
    with pytest.raises(
        MissingOutputError,
        match=r"holds none: pass head= or model=, or train one on its labelled rows with labels=\.",
    ):
        select_from_file("pool.parquet", n=2)


def test_logits_alone_are_enough_for_strategies_of_logits(folder: Path) -> None:
    np.savez("pool.npz", logits=[[0.0, 3.0], [1.0, 0.5]], classes=["u", "v"])
    picks = select_from_file("pool.npz", strategy="margin", n=2)
    assert (column(picks, "row"), column(picks, "predicted")) == ([1, 0], ["u", "v"])
    assert column(picks, "ldm") == [None, None]
    with pytest.raises(
        MissingOutputError, match=r"ldm-s needs features, but pool.npz holds none\."
    ):
        select_from_file("pool.npz", n=1)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            LABELLED,
            {},
            r"ldm-s needs a head, but pool.csv holds none: pass head= .* with labels=. "
            r"You can also use random, seeding-l2",
        ),
        (
            LABELLED,
            {"labels": "kinds"},
            "No column of pool.csv is called 'kinds'. Did you mean 'kind'?",
        ),
        (LABELLED, {"labels": "kind,size"}, "labels= names 2 columns"),
        (LABELLED, {"labels": "size"}, "holds fractions such as 0.1"),
        (
            LABELLED,
            {"labels": "kind", "id_column": "kind"},
            "cannot hold both the labels and the ids",
        ),
        (
            LABELLED,
            {"labels": "kind", "id_column": "name"},
            "No column of pool.csv is called 'name'",
        ),
        (LABELLED, {"labels": "kind", "n": 5}, "Cannot pick 5 of 4 candidates: ask for 1 to 4."),
        (
            "x,y\n1,a\n2,b\n",
            {"labels": "y"},
            "All 2 rows of pool.csv have a label in 'y': none is left to pick.",
        ),
        (
            "x,y\n1,\n2,\n",
            {"labels": "y"},
            "holds no label, but ldm-s needs .* random, seeding-l2 and seeding-cosine",
        ),
        (
            "x,y\n1,a\n2,\n",
            {"labels": "y"},
            "holds only the class 'a', but ldm-s needs rows of at least 2 classes",
        ),
        (
            "x,y\n1,a;b\n2,\n3,b\n",
            {"labels": "y"},
            "The cell 'a;b' in column 'y' of pool.csv seems to hold several",
        ),
        (
            "id,x,y\nk,1,a\nk,2,b\n,3,\n",
            {"labels": "y"},
            "The id 'k' in column 'id' of pool.csv is used in line 2 and line 3",
        ),
        (
            "id,x,y\nk,1,a\n,2,b\nl,3,\n",
            {"labels": "y"},
            "The id in column 'id' of pool.csv is blank in line 3",
        ),
        ("x,y\n1,a\n1,b\n1,\n", {"labels": "y"}, "No column of pool.csv can be used as a feature"),
        ("t,y\nu v,a\nv w,b\nw x,\n", {"labels": "y"}, "Left out because they hold free text: t."),
        ("x,y\n1,a\n2\n", {"labels": "y"}, "Line 3 of pool.csv has 1 fields and the header has 2"),
    ],
)
def test_a_table_that_cannot_be_picked_from(
    folder: Path, text: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        select_from_file(table(text), **{"n": 1, **arguments})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"features": [[1.0], [np.nan]]},
            "features has NaN or infinity in 1 of 2 rows, first in row 1",
        ),
        ({"features": [[1.0, 2.0]]}, "features has 2 columns and weight has 1"),
        ({"features": [1.0, 2.0]}, r"features has shape \(2,\)"),
        (
            {"features": [[1.0]], "classes": ["a", "b", "c"]},
            "There are names for 3 classes, but .* have 2",
        ),
        ({"features": np.ones((0, 1))}, "Cannot pick from an empty pool"),
    ],
)
def test_arrays_that_cannot_be_picked_from(
    folder: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez("head.npz", weight=[[1.0], [2.0]])
    np.savez("pool.npz", **arrays)
    with pytest.raises(InputError, match=message):
        select_from_file("pool.npz", head="head.npz", n=1)


def test_a_label_that_occurs_once_is_a_class(folder: Path) -> None:
    picks = select_from_file(table("x,y\n1,a\n2,a\n3,b\n9,c\n8.5,\n1.5,\n"), labels="y", n=2)
    assert dict(zip(column(picks, "row"), column(picks, "predicted"), strict=True)) == {
        4: "c",
        5: "a",
    }


def test_the_same_seed_picks_the_same_rows(folder: Path) -> None:
    lines = [f"{k * 37 % 101},{k * 53 % 97},{'ab'[k % 2] if k < 8 else ''}" for k in range(100)]
    path = table("\n".join(["w,x,y", *lines]))
    seeds = [
        column(select_from_file(path, labels="y", n=5, rays=16, seed=seed), "row")
        for seed in (0, 0, 1)
    ]
    assert seeds[0] == seeds[1] != seeds[2]


def test_the_facts_say_what_the_picks_depend_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETER_COMMIT", "f" * 40)
    selection = json.loads(
        select_from_file(table(LABELLED), labels="kind", n=2, seed=3, device="cpu").to_json()
    )

    device = selection["facts"].pop("device")
    assert "threads" in device
    assert selection["facts"] == {
        "version": teeter.__version__,
        "commit": "f" * 40,
        "pool": "pool.csv",
        "head": None,
        "model": None,
        "labels": "kind",
        "id_column": None,
        "rays": None,
        "subspace": 16,
        "strategy": "ldm-s",
        "options": {},
        "seed": 3,
        "n": 2,
        "candidates": 4,
        "labelled": 2,
        "classes": ["no", "yes"],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "notes": [],
    }
    assert set(selection["picks"][0]) == {
        "rank",
        "id",
        "row",
        "ldm",
        "predicted",
        "margin",
        "score",
    }


@given(ids=st.lists(IDS, min_size=1, max_size=12, unique=True))
def test_ids_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    path = tmp_path_factory.mktemp("ids") / "pool.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(
            [("id", "x"), *((name, k) for k, name in enumerate(ids))]
        )

    picks = select_from_file(path, strategy="random", n=len(ids))
    written = io.StringIO(newline="")
    picks.to_csv(written)
    lines_read = list(csv.DictReader(io.StringIO(written.getvalue(), newline=""), strict=True))

    assert {line["id"]: int(line["row"]) for line in lines_read} == {
        name: row for row, name in enumerate(ids)
    }
    assert written.getvalue().startswith("rank,id,row,ldm,predicted,margin\n1,")
    assert [pick["id"] for pick in json.loads(picks.to_json())["picks"]] == [
        line["id"] for line in lines_read
    ]


def test_a_real_table(folder: Path, real_data: Path) -> None:
    """Letters: a head fitted to 400 of them is right about most of the rest, and unsure of what it
    gets wrong.
    """
    letters = np.load(real_data / "letter.npz")
    features, labels = letters["x"][:3000], letters["y"][:3000]
    lines = [
        f"{','.join(map(str, row))},{chr(65 + y) if k < 400 else ''}"
        for k, (row, y) in enumerate(zip(features, labels, strict=True))
    ]
    path = table("\n".join([",".join([*(f"f{k}" for k in range(16)), "letter"]), *lines]))

    picks = select_from_file(path, labels="letter", strategy="margin", n=2600)
    right = (
        np.array([ord(p) - 65 for p in column(picks, "predicted")]) == labels[column(picks, "row")]
    )

    assert right.mean() > 0.5
    assert right[-500:].mean() > right[:500].mean() + 0.3


def test_words_that_mean_no_label_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("x,y\n1,a\n2,b\n3,none\n4,None\n5,\n")
    notes = select_from_file(path, labels="y", n=1).provenance.notes
    assert any("1 cells 'none'" in note for note in notes)


def test_the_ldm_beside_the_picks_is_the_strategy_s(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    lines = [f"{k * 37 % 101},{k * 53 % 97},{'ab'[k % 2] if k < 8 else ''}" for k in range(60)]
    path.write_text("\n".join(["w,x,y", *lines]))
    values = [
        {
            pick.row: pick.ldm
            for pick in select_from_file(path, labels="y", n=52, strategy=name, seed=3).picks
        }
        for name in ("ldm", "random")
    ]
    assert values[0] == values[1]

"""Labels per class: on one line if they fit, otherwise in columns with the small classes named."""

from __future__ import annotations

from rich.cells import cell_len

from teeter.cli.campaign import format_class_counts


def test_few_classes_are_on_one_line_with_the_most_frequent_first() -> None:
    counts = {"ham": 62, "spam": 1038, "other": 0}
    assert format_class_counts(counts, width=80) == ["spam 1,038, ham 62, other 0"]


def test_up_to_20_classes_are_all_listed_in_columns() -> None:
    counts = {f"a long class name {number}": number for number in range(20)}
    lines = format_class_counts(counts, width=80)
    assert len(lines) < 20
    assert lines[0].startswith("19 a long class name 19")
    assert sum(line.count("a long class name") for line in lines) == 20


def test_more_than_20_classes_name_the_rare_and_the_empty_ones() -> None:
    counts = {f"frequent {number}": 100 + number for number in range(25)}
    counts |= {"rare": 3, "rarest": 1}
    counts |= {f"empty {number}": 0 for number in range(12)}
    lines = format_class_counts(counts, width=80)

    assert lines[-3:] == [
        "19 more classes: list them with --all.",
        "Fewer than 5 labels (2): rarest (1), rare (3).",
        "No labels (12): empty 0, empty 1, empty 2, empty 3, empty 4, empty 5, empty 6, empty 7, "
        "empty 8, empty 9 and 2 more.",
    ]
    assert "frequent 5" in " ".join(lines)
    assert "frequent 4 " not in " ".join(lines)


def test_all_classes_are_listed_on_request() -> None:
    counts = {f"class {number}": number % 7 for number in range(150)}
    lines = format_class_counts(counts, width=80, show_all=True)
    assert sum(line.count("class") for line in lines) == 150
    assert max(len(line) for line in lines) <= 80


def test_columns_fit_wide_characters_and_long_names() -> None:
    counts = {f"{'分類' * 20}{number}": number for number in range(30)}
    lines = format_class_counts(counts, width=80)
    columns = [line for line in lines if line[:2].strip().isdigit() and "more" not in line]
    assert len(columns) == 20
    assert max(cell_len(line) for line in columns) <= 80


def test_names_are_printed_as_they_are() -> None:
    counts = {f"[bold] :smile: {number}": number for number in range(30)}
    lines = format_class_counts(counts, width=80)
    assert "[bold] :smile: 29" in lines[0]

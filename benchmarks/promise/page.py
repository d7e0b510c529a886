"""Write the page about promises from the committed results, with its figure.

python benchmarks/promise/page.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from teeter.analysis.plot_style import new_figure, style_axes

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.labelling import save_svg

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "promise.json"
PAGE = ROOT / "docs" / "explanation" / "promise.md"

INTRODUCTION = """# The promise behind "label the rest"

`teeter campaign finish` says which items the model may label, and promises: *with {confidence:.0%} confidence, at most
{error:.0%} of its labels are wrong*. This page says what that means, why it holds, what it assumes, and what came of it in
{campaigns:,} simulated campaigns whose truth is known. [How to use it](../how_to/label_the_rest.md) is another page.

## The method

1. **Freeze.** The promise is about one model. It is frozen with all its labels, and its calibrated confidence for every item is
   stored. The *set* has the items that no person had labelled when the model was trained. Later labels train later models, but
   this one stays as it is.
2. **Draw.** Items of the set are drawn at random, without replacement, and people label them without seeing what the model
   says: draws are labelled blind. The exception is items that were labelled as picks before they were drawn, perhaps with the
   model's prediction in view. A draw that is flagged, skipped, or that nobody can tell counts as wrong: the model would have labelled it.
3. **Test.** The set is cut into steps by confidence: the 5% of the items that the model is surest of, the 10%, and so on. For
   each step with N items and a limit of k wrong labels, the hypothesis "more than k are wrong" is tested. The test compares how
   probable the draws are if k + 1 items are wrong with how probable they are under a beta-binomial prior. If the hypothesis is
   true, this ratio is a nonnegative martingale that starts at 1, so it ever reaches 1/α with a probability of at most α (Ville's
   inequality). This is exact for draws without replacement from a finite set, for every sample size, and **for any number of looks**.
4. **Choose the largest step.** The steps are tested from the smallest to the largest with the fallback procedure: each step has a
   share of α that is fixed before the first draw, and a step that passes hands its share to the next one. The probability that
   any step passes wrongly stays below α. A step with more known wrong labels than its limit, drawn or not, does not pass.
5. **Start again at a price.** The first attempt of a campaign spends 90% of α, the second 90% of the rest, and so on. A promise that
   failed can be tried again with a better model, and all attempts together keep the confidence.

With `--per-class`, each predicted class is a set of its own, with α divided by the number of classes (Bonferroni).

The limit of a step is {error:.0%} of its items *after* the labels that people give while they draw (up to 5 divided by the error, and
at most a tenth of the step). Otherwise, drawing many right items would leave the wrong ones in a smaller rest. If people label more
than that, the promise goes on counting some of the items that they labelled, and the certificate says how many items it counts.

## Which random items count

Only draws after the model was trained, from what it had to label then. That includes **control items**: teeter draws them from
all items, also from labelled ones, whatever the strategy does. So the control items drawn since an older model was trained are an
exact random sample of the items that had no label then. If enough of them were drawn, that older model is frozen, and the promise
may hold at once. On the day of the start you may have seen how well the control items went, so nothing may depend on that: the models
that past control items can speak for are fixed in advance by the numbers of control items drawn (the first model, and the first after
E, 3E, 7E, …), each has a part of a tenth of α, and the plan does not show their outcome before the start. Choose the error before you
look at the accuracy.

Three kinds of items do not count. **Picked items** were chosen because they are hard. **Control items from before the model**
trained it. The **audit set** trained nothing, but the strategy was never allowed to pick from it, while it took the hardest items
out of the rest: the audit set is therefore not like the rest, which may be harder or easier.

No label is lost to the promise: the frozen model learned from every label there was, and the draws train the next one.

## What it assumes

- **People are right.** The promise compares the model with people. With several annotators, their consensus or a reviewer's
  decision counts, as it is now: a label that is corrected later changes the result, and may end a certificate.
- **Draws are labelled blind.** They are shown without the model's opinion. An item that was labelled as a pick before it was drawn
  counts with that label, which was not blind if the page showed a prediction: people who follow predictions make the model look better.
- **The draws are random.** They come from a random number generator with the campaign's seed.
- **Nothing about the model**: it may be badly calibrated, biased, or overfitted. Then fewer items pass, or none.
- **Nothing about the items**: near duplicates, drift inside the pool and rare classes do not matter, because the set is finite and fixed.

It says nothing about items that are added later, about other data, or about single classes unless it is made per class.

## Class shares and confidence

The shares of the classes among the items of the set and the labelled items are estimated by prediction-powered inference: the shares that the model predicts,
corrected by its errors among the draws, with the weight of the predictions tuned to their worth. Their 95% intervals rest on the
normal approximation, widened by one pseudo-error in each direction. Each holds for one look at a number of draws chosen
in advance, unlike the promise, and whether or not a promise does.
Confidences are calibrated by temperature scaling on items that the judging models were not trained on (control items if there are
30 or more). The reliability diagram on the progress page shows the draws, which have no part in the calibration.

## Measured

{campaigns:,} campaigns were simulated. Each labels a random part of a dataset with margin sampling and a tenth of control items, with the linear head
of campaigns on `minilm` features (digits: pixels). Then the model is frozen, up to 400 items are drawn (Banking77: 1,000, digits: 300), and the promise
is asked for **after every {look_every} draws**. *Broken* is the share of campaigns in which at least one promise of any look was not
true; it must be at most 5%. *Coverage* is the share of the rest that the model may label at the last look. The *oracle* knows
all labels and takes the largest share that keeps the error.

| dataset | campaigns | model's accuracy | broken | at one look | coverage after 200 draws | at the end | oracle |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""

AFTER_MAIN = """
*At one look* is the largest share of broken promises at any single look.

![Share of the rest that the model may label, over the number of random labels, beside the oracle](promise.svg)

The promise is broken much more rarely than allowed: the test pays for any number of looks, and the shares of α that are reserved for
other steps are not all used. The price is coverage, mostly with few draws.

### While labelling goes on

In the same campaigns, half as many picked items as draws were labelled at the same time, the hardest first. They leave the set in a
way that depends on the model, but the promise must still hold. It must also hold if only the items that the model labels are counted
(*rest*), as long as people label no more items than the reserve.

| dataset | broken | broken, rest only | coverage at the end |
| --- | ---: | ---: | ---: |
"""

AFTER_MIXED = """
### For each class

| dataset | broken for some class | coverage at the end |
| --- | ---: | ---: |
"""

AFTER_CLASS = """
### Without a promise

The usual shortcuts, on the same campaigns: label everything above the lowest threshold at which at most {error:.0%} of the *drawn* items are
wrong, or at which the mean *confidence* promises it. *At one look* is the mean over looks, *ever* is with looking after every {look_every} draws.

| dataset | by the draws, at one look | ever | by the confidence, at one look | ever |
| --- | ---: | ---: | ---: | ---: |
"""

AFTER_NAIVE = """
### Class shares

How often the 95% intervals contain the truth, averaged over the classes, and their width beside that of the draws alone, without a model.

| dataset | draws | intervals that hold | width | width without a model |
| --- | ---: | ---: | ---: | ---: |
"""

CLOSING = """
`python benchmarks/promise/page.py` writes this page from `benchmarks/promise/results/promise.json`, and a test fails if it is out of
date. `python benchmarks/promise/simulate.py` simulates the campaigns again ({hardware}). The
statistics are checked against a transcription in exact fractions, and the error under looking after every draw is computed exactly
for small sets.

## References

- I. Waudby-Smith and A. Ramdas. Confidence sequences for sampling without replacement. NeurIPS 2020.
- B. L. Wiens. A fixed sequence Bonferroni procedure for testing multiple endpoints. Pharmaceutical Statistics 2003.
- J. Ville. Étude critique de la notion de collectif. 1939.
- A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan and T. Zrnic. Prediction-powered inference. Science 2023.
- A. N. Angelopoulos, J. C. Duchi and T. Zrnic. PPI++: efficient prediction-powered inference. 2024.
- C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger. On calibration of modern neural networks. ICML 2017.
"""


def read_result() -> dict[str, Any]:
    """Return the committed results."""
    result: dict[str, Any] = json.loads(RESULT.read_text())
    return result


def build_page() -> str:
    """Return the page about the committed results."""
    result = read_result()
    datasets = result["datasets"]
    values = {
        "campaigns": sum(summary["campaigns"] for summary in datasets.values()),
        "error": result["terms"]["error"],
        "confidence": result["terms"]["confidence"],
        "look_every": result["look_every"],
        "hardware": result["made"][0]["hardware"],
    }

    main_rows = []
    mixed_rows = []
    class_rows = []
    naive_rows = []
    share_rows = []
    for summary in datasets.values():
        title = summary["title"]
        random = summary["random"]
        at_200 = random["coverage"][random["draws"].index(200)]
        main_rows.append(
            f"| {title} | {summary['campaigns']:,} | {summary['accuracy']:.1%} | "
            f"{random['broken_ever']:.1%} | {max(random['broken_at_look']):.1%} | {at_200:.0%} | "
            f"{random['coverage'][-1]:.0%} | {random['oracle'][-1]:.0%} |"
        )
        mixed = summary["mixed"]
        mixed_rows.append(
            f"| {title} | {mixed['broken_ever']:.1%} | {mixed['rest_broken_ever']:.1%} | "
            f"{mixed['coverage'][-1]:.0%} |"
        )
        if "per_class" in summary:
            per_class = summary["per_class"]
            class_rows.append(
                f"| {title} | {per_class['broken_ever']:.1%} | {per_class['coverage'][-1]:.0%} |"
            )
        naive = summary["naive"]
        cells = []
        for way in ("observed", "confidence"):
            mean = sum(naive[way]) / len(naive[way])
            cells += [f"{mean:.0%}", f"{naive[f'{way}_ever']:.0%}"]
        naive_rows.append(f"| {title} | {' | '.join(cells)} |")

        shares = summary["shares"]
        for k, draws in enumerate(shares["draws"]):
            share_rows.append(
                f"| {title} | {draws:.0f} | {shares['covered'][k]:.1%} | "
                f"{100 * shares['width'][k]:.1f} points | "
                f"{100 * shares['classical'][k]:.1f} points |"
            )

    parts = [
        (INTRODUCTION, main_rows),
        (AFTER_MAIN, mixed_rows),
        (AFTER_MIXED, class_rows),
        (AFTER_CLASS, naive_rows),
        (AFTER_NAIVE, share_rows),
    ]
    page = ""
    for text, rows in parts:
        page += text.format(**values) + "\n".join(rows) + "\n"
    return page + CLOSING.format(**values)


def draw_figure(folder: Path) -> Path:
    """Draw coverage over draws for each dataset, and return the SVG file."""
    datasets = read_result()["datasets"]
    figure = new_figure(9, 2.6)
    axes_row = figure.subplots(1, len(datasets), sharey=True)
    for axes, summary in zip(axes_row, datasets.values(), strict=True):
        random = summary["random"]
        axes.plot(
            random["draws"], random["oracle"], color="#55606e", linestyle="--", label="oracle"
        )
        axes.plot(
            random["draws"], random["coverage"], color="#d55e00", linewidth=2.5, label="promised"
        )
        axes.set_title(summary["title"].split(",")[0], fontsize=9)
        axes.set_xlabel("random labels")
        axes.set_ylim(0, 1.03)
        style_axes(axes)
    axes_row[0].set_ylabel("share of the rest")
    axes_row[0].legend(frameon=False, loc="center right", fontsize=8)

    return save_svg(figure, folder / "promise")


def main() -> None:
    PAGE.write_text(build_page())
    draw_figure(PAGE.parent)


if __name__ == "__main__":
    main()

"""Write the page about promises from the committed results, with its figure.

python research/promise/page.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from teeter.bench.analysis.plots import new_figure, style_axes

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import save_svg

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "promise.json"
WHOLE_FILE = Path(__file__).parent / "results" / "whole_file.json"
PAGE = ROOT / "docs" / "explanation" / "promise.md"

WHOLE_FILE_TITLES = {"sms_spam": "SMS Spam", "digits": "digits", "banking77": "Banking77"}

INTRODUCTION = """# The promise behind "label the rest"

`teeter campaign finish` says which items the model may label, and promises: *with {confidence:.0%} confidence, at most
{error:.0%} of its labels are wrong*. This page says why the promise holds, what it assumes, and how often it held in
{campaigns:,} simulated campaigns. To use it, see [Let the model label the rest](../how_to/label_the_rest.md).

## The method

1. **Freeze.** The promise is about one model. Its predictions and its calibrated confidence for every item are stored.
   The *set* contains the items that no person had labelled when the model was trained. Later labels train later models,
   but the frozen model does not change.
2. **Draw.** Items of the set are drawn at random, without replacement. People label these draws blind, that is, without
   seeing the model's prediction. A draw that is flagged or skipped, or that nobody is sure about, counts as wrong,
   because the model would have labelled it.
3. **Test.** Nested parts of the set, called steps, are formed by confidence: the 5% of the items about which the
   model is most confident, the top 10%, and so on. For each step, which has N items and a limit of k wrong labels,
   we test the hypothesis "more than k labels are wrong". The test statistic is the probability of the draws under a
   beta-binomial prior, divided by their largest probability under the hypothesis. If the hypothesis is true, this
   ratio is bounded by a nonnegative martingale that starts at 1, so the probability that it ever reaches 1/α is at
   most α (Ville's inequality). This is exact for draws without replacement from a finite set, for every sample size,
   and **for any number of looks**.
4. **Choose the largest step.** The steps are tested from the smallest to the largest with the fallback procedure. Each
   step has a share of α that is fixed before the first draw, and a step that passes hands its share to the next one. The
   probability that any step passes wrongly stays below α. A step does not pass if more of its labels are known to be
   wrong than its limit allows, whether these items were drawn or not.
5. **Start again at a price.** The first attempt of a campaign spends 90% of α, the second 90% of the rest, and so on.
   The confidence holds for all attempts together.

With `--per-class`, each predicted class is a separate set, and α is divided by the number of classes (Bonferroni).

The limit of a step is {error:.0%} of its items minus a reserve for the items that people label during the drawing: 5
divided by the error, and at most a tenth of the step. Without a reserve, the wrong labels would become a larger share of
the remaining items whenever people label items that the model predicts correctly. If people label more items than the
reserve, some of them count towards the promise, and the certificate says how many items it counts.

### For the whole file

With `--labelled 90%`, the promise is about all labels in the file: *at most {error:.0%} of them are wrong*, those that
people gave one by one without seeing a prediction included. People are taken to be right, so with h labels of theirs
outside the set, a step of N items may have {error:.0%} of h + N wrong labels. A label that somebody gives inside the step
replaces a wrong one of the model, which leaves the limit, or a right one, which remains a label of the file. Labels
can only be lost if answers are undone, or items withdrawn, flagged or labelled in bulk. So the labels are counted
again at each look, and the promise ends if what may be wrong is more than {error:.0%} of them. A reserve of 1% makes
that rare. All of α goes to the smallest step with which 90% of the items have a label, and passes on to larger ones.

## Which random items count

A random item counts only if it was drawn after the model was trained, from the items that had no label at that time.
This includes **control items**. The control items drawn since an older model was trained are an exact random sample of
the items that had no label then. If there are enough of them, that older model is frozen, and the promise may hold as
soon as you start. You may already know how well the model predicts them, so the choice of the model must not depend on
that: the models that can be tested are fixed in advance by the number of control items drawn (the first model, and the
first after E, 3E, 7E, … control items). They share a tenth of α, and the plan does not show their outcome before the
start. Choose the error before you look at the accuracy.

Three kinds of items do not count: **picked items**, which were chosen because they are hard; **control items from before
the model**, which trained it; and the **holdout**, because the strategy could not pick from it while it removed the
hardest of the other items, so it is not representative of the rest.

## What it assumes

- **People are right.** The promise compares the model with people. With several annotators, their current consensus or a
  reviewer's decision counts. A label that is corrected later may make a certificate invalid.
- **Draws are labelled blind.** An item that was answered with a prediction in view, in bulk or as a copy is asked again when it
  is drawn, without the prediction. Until then it does not count as drawn, and the label that was given blind wins.
- **The draws are random.** They come from a random number generator with the campaign's seed.
- **Nothing about the model.** If it is badly calibrated, biased or overfitted, it may label fewer items, or none.
- **Nothing about the items.** Near duplicates, drift inside the pool and rare classes do not matter, because the set is
  finite and fixed.

The promise says nothing about items that are added later, about other data, or about individual
classes unless it is made per class.

## Class shares and confidence

The share of each class, among the set and the labelled items together, is estimated by prediction-powered inference: the
share that the model predicts, weighted by how useful the predictions are, and corrected for the model's errors among the
draws. The 95% intervals use the normal approximation, widened by one pseudo-error in each direction. Unlike the promise,
each is valid only for one look, at a number of draws chosen in advance, and whether or not the promise holds. Confidences
are calibrated by temperature scaling, on items that the models which predict them were not trained on (control items, if
there are 30 or more).

## Measured

Each of {campaigns:,} campaigns labels a random part of a dataset with margin sampling and 10% control items, and trains
the usual pool head on `minilm` features (digits: pixels). Then the model is frozen, up to 400 items are drawn
(Banking77: 1,000, digits: 300), and the promise is checked **after every {look_every} draws**. *Broken* is the share of
campaigns in which it was false at one or more of these looks, and must be at most 5%. *Coverage* is the share of the
remaining items that the model may label. The *oracle* knows all labels and takes the largest share that keeps the
error.

| dataset | model's accuracy | broken | coverage after 200 draws | at the end | oracle |
| --- | ---: | ---: | ---: | ---: | ---: |
"""

AFTER_MAIN = """
![Share of the rest that the model may label, over the number of random labels, beside the oracle](promise.svg)

The promise is broken much more rarely than allowed, because the test allows any number of looks, and because some of the
shares of α remain unused. The price is a lower coverage, mostly when there are few draws.

### While labelling goes on, and for each class

In the same campaigns, we also labelled one picked item for every two draws, the hardest first. The promise must hold
even if only the items that the model labels are counted (*rest*), as long as people label no more items than the reserve.
The last two columns are for a promise for each class, broken if it is for some class.

| dataset | broken | broken, rest only | coverage at the end | per class: broken | per class: coverage |
| --- | ---: | ---: | ---: | ---: | ---: |
"""

AFTER_MIXED = """
### Without a promise

Two common shortcuts label everything above a threshold of the confidence: the lowest at which at most {error:.0%} of the
*drawn* items are wrong, or the lowest at which the mean *confidence* is at least 1 minus this error. The table shows how
often more than {error:.0%} of the labels were wrong. *At one look* is the mean over all looks, and *ever* counts
campaigns in which it happened at any look, one after every {look_every} draws.

| dataset | by the draws, at one look | ever | by the confidence, at one look | ever |
| --- | ---: | ---: | ---: | ---: |
"""

AFTER_NAIVE = """
### All labels of the file

{promises:,} promises for each dataset, of {models} models with 25 orders of draws each, looked at after every 20 draws until a share of all
items had a label: how many random labels that took (median, and 80% of the promises), and how often more was wrong than
promised. The published way (Candès, Ilyas and Zrnic 2025) has a bound for one number of draws, chosen in advance; here
it is looked at as often as the others. {never}

| dataset | labelled | whole file | broken | the model's labels | broken | published | broken |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""

AFTER_WHOLE_FILE = """
### Class shares

How often the 95% intervals contain the true share, averaged over the classes, how wide they are, and how wide they
would be from the draws alone, without a model:

| dataset | draws | intervals that hold | width | width without a model |
| --- | ---: | ---: | ---: | ---: |
"""

CLOSING = """
`python research/promise/simulate.py` simulates the campaigns again, and `page.py` beside it writes this page. Tests
compare the statistics with a transcription in exact fractions, and compute for small sets exactly how often a promise
is broken.

## References

- I. Waudby-Smith and A. Ramdas. Confidence sequences for sampling without replacement. NeurIPS 2020.
- B. L. Wiens. A fixed sequence Bonferroni procedure for testing multiple endpoints. Pharmaceutical Statistics 2003.
- J. Ville. Étude critique de la notion de collectif. 1939.
- A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan and T. Zrnic. Prediction-powered inference. Science 2023.
- A. N. Angelopoulos, J. C. Duchi and T. Zrnic. PPI++: efficient prediction-powered inference. 2024.
- E. Candès, A. Ilyas and T. Zrnic. Probably approximately correct labels. 2025.
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
    }

    main_rows = []
    mixed_rows = []
    naive_rows = []
    share_rows = []
    for summary in datasets.values():
        title = summary["title"]
        random = summary["random"]
        at_200 = random["coverage"][random["draws"].index(200)]
        main_rows.append(
            f"| {title} | {summary['accuracy']:.1%} | {random['broken_ever']:.1%} | {at_200:.0%} | "
            f"{random['coverage'][-1]:.0%} | {random['oracle'][-1]:.0%} |"
        )
        name = title.split(",")[0]
        mixed = summary["mixed"]
        per_class_cells = ["–", "–"]
        if "per_class" in summary:
            per_class = summary["per_class"]
            per_class_cells = [
                f"{per_class['broken_ever']:.1%}",
                f"{per_class['coverage'][-1]:.0%}",
            ]
        mixed_rows.append(
            f"| {name} | {mixed['broken_ever']:.1%} | {mixed['rest_broken_ever']:.1%} | "
            f"{mixed['coverage'][-1]:.0%} | {' | '.join(per_class_cells)} |"
        )
        naive = summary["naive"]
        cells = []
        for way in ("observed", "confidence"):
            mean = sum(naive[way]) / len(naive[way])
            cells += [f"{mean:.0%}", f"{naive[f'{way}_ever']:.0%}"]
        naive_rows.append(f"| {name} | {' | '.join(cells)} |")

        shares = summary["shares"]
        for k, draws in enumerate(shares["draws"]):
            share_rows.append(
                f"| {name} | {draws:.0f} | {shares['covered'][k]:.1%} | "
                f"{100 * shares['width'][k]:.1f} points | "
                f"{100 * shares['classical'][k]:.1f} points |"
            )

    whole_file = json.loads(WHOLE_FILE.read_text())
    whole_rows = []
    for name, title in WHOLE_FILE_TITLES.items():
        summary = whole_file[name]
        cells = [f"{summary['labelled']:.0%}"]
        for way in ("whole file", "model's labels", "published"):
            low, median, high = summary[way]["draws"]
            cells += [f"{median:.0f} ({low:.0f} to {high:.0f})", f"{summary[way]['broken']:.1%}"]
        whole_rows.append(f"| {title} | {' | '.join(cells)} |")
    never = [
        f"{1 - whole_file[name][way]['certified']:.1%} of those for {way_title} on {title}"
        for name, title in WHOLE_FILE_TITLES.items()
        for way, way_title in (
            ("whole file", "the whole file"),
            ("model's labels", "the model's labels"),
        )
        if whole_file[name][way]["certified"] < 1
    ]
    values["never"] = f"Promises that never got so far are left out: {', '.join(never)}."
    values["promises"] = whole_file["digits"]["promises"]
    values["models"] = whole_file["digits"]["promises"] // 25

    parts = [
        (INTRODUCTION, main_rows),
        (AFTER_MAIN, mixed_rows),
        (AFTER_MIXED, naive_rows),
        (AFTER_NAIVE, whole_rows),
        (AFTER_WHOLE_FILE, share_rows),
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

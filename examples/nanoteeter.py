"""nanoteeter: teeter in one file, with nothing but NumPy. Read it from the top.

1. A network with one hidden representation, trained by Adam: ``train``, ``predict``.
2. The least disagree metric by rays, and LDM-S, which draws a batch by it: ``ldm``, ``ldm_s``.
3. The loop: ask, label, train again: ``run``.
4. The promise: which of the remaining labels may be left to the model: ``promise``.

    $ python examples/nanoteeter.py letter.npz --workers 5

repeats the comparison of LDM-S with Random on OpenML's letters, as in the README's table. Its first
16,000 rows are the pool and the other 4,000 the test rows: ``x`` (20000, 16), ``y`` (20000,). The
real library does the same for any model, faster, on GPUs, in campaigns with people.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from itertools import pairwise
from multiprocessing import Pool
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
Generator = np.random.Generator
Layers = list[tuple[Floats, Floats]]  # a weight (inputs, outputs) and a bias (outputs,) for each

# ---- 1. A network: two hidden layers of 128 units with ReLU and dropout, then a linear head.

HIDDEN = 128
DROPOUT = 0.3


def make_layers(inputs: int, classes: int, parameters: Floats) -> Layers:
    """Return the weights and biases that a flat vector of parameters holds, as views of it."""
    sizes = [inputs, HIDDEN, HIDDEN, classes]
    layers = []
    start = 0
    for rows, columns in pairwise(sizes):
        end = start + rows * columns
        weight = parameters[start:end].reshape(rows, columns)
        layers.append((weight, parameters[end : end + columns]))
        start = end + columns
    return layers


def forward(layers: Layers, x: Floats, masks: list[Floats] | None = None) -> list[Floats]:
    """Return the inputs of every layer, and the logits at the end."""
    values = [x]
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        is_hidden = number < len(layers) - 1
        if is_hidden:
            x = np.maximum(x, 0)
            if masks is not None:
                x = x * masks[number]
        values.append(x)
    return values


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def train(x: Floats, y: Integers, classes: int, rng: Generator, epochs: int = 100) -> Layers:
    """Train a new network on labelled rows by Adam, in batches of 64 with a rate of 0.001."""
    inputs = x.shape[1]
    count = (inputs + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * classes
    parameters = np.zeros(count, dtype=np.float32)
    layers = make_layers(inputs, classes, parameters)
    for weight, _ in layers:
        weight[:] = rng.normal(0, math.sqrt(2 / len(weight)), weight.shape)

    gradient = np.zeros_like(parameters)
    gradients = make_layers(inputs, classes, gradient)
    first_moment = np.zeros_like(parameters)
    second_moment = np.zeros_like(parameters)
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), 64):
            rows = order[start : start + 64]
            shape = (len(rows), HIDDEN)
            masks: list[Floats] = []
            for _ in range(2):
                is_kept = rng.random(shape, dtype=np.float32) > DROPOUT
                masks.append((is_kept / (1 - DROPOUT)).astype(np.float32))
            values = forward(layers, x[rows], masks)

            # Backwards: the gradient of the mean cross-entropy by the output of each layer.
            by_output = softmax(values[-1])
            by_output[np.arange(len(rows)), y[rows]] -= 1
            by_output /= len(rows)
            for number in (2, 1, 0):
                by_weight, by_bias = gradients[number]
                by_weight[:] = values[number].T @ by_output
                by_bias[:] = by_output.sum(axis=0)
                if number:
                    by_input = by_output @ layers[number][0].T
                    by_output = by_input * masks[number - 1] * (values[number] > 0)

            # Adam, for all parameters at once.
            step += 1
            first_moment += 0.1 * (gradient - first_moment)
            second_moment += 0.001 * (gradient**2 - second_moment)
            scale = np.sqrt(second_moment / (1 - 0.999**step)) + 1e-8
            parameters -= 0.001 / (1 - 0.9**step) * first_moment / scale
    return layers


def predict(layers: Layers, x: Floats) -> Floats:
    """Return class probabilities: (N, C)."""
    return softmax(forward(layers, x)[-1])


# ---- 2. The least disagree metric (LDM) and LDM-S.

RAYS = 512
SUBSPACE = 16


def draw_directions(
    rng: Generator, classes: int, features: int, directions: int
) -> list[tuple[Floats, Floats]]:
    """Return changes (E, e) of a head in blocks of 16, each block (16, C, D) and (16, C).

    The directions of a block share a random subspace, so that what they do to a row is cheap.
    """
    blocks: list[tuple[Floats, Floats]] = []
    for _ in range(0, directions, 16):
        basis = rng.normal(size=(features + 1, SUBSPACE))
        steps = rng.normal(size=(16, classes, SUBSPACE))
        change = steps @ basis.T / math.sqrt(SUBSPACE)
        blocks.append((change[:, :, :-1], change[:, :, -1]))
    return blocks


def ldm(
    features: Floats, weight: Floats, bias: Floats, blocks: list[tuple[Floats, Floats]]
) -> Floats:
    """Return the least disagree metric of each row: (N,).

    Move the head (W, b) by sigma (E, e), and let sigma grow. With the logits l, their change v and
    the predicted class y, a row flips at the sigma at which l_c + sigma v_c first exceeds
    l_y + sigma v_y, so its flip rate 1 / sigma is the maximum over c of (v_c - v_y) / (l_y - l_c).
    The rows that have flipped by then are those of equal or larger rates. Their share is the least
    disagreement that flips the row on this ray; the LDM is the smallest over all rays.

    Args:
        features: (N, D) inputs of the head.
        weight: (C, D).
        bias: (C,).
        blocks: directions, each of which is two rays: itself and its opposite.
    """
    N = len(features)
    every = np.arange(N)
    logits = features @ weight.T + bias
    predicted = logits.argmax(axis=1)
    gaps = logits[every, predicted][:, None] - logits  # l_y - l_c, (N, C)
    gaps[every, predicted] = np.inf  # the class itself never overtakes

    least = np.ones(N)
    for moves, shifts in blocks:
        for move, shift in zip(moves, shifts, strict=True):
            change = features @ move.T + shift
            ratios = (change - change[every, predicted][:, None]) / gaps
            ratios[every, predicted] = 0
            for rates in (ratios.max(axis=1), -ratios.min(axis=1)):
                # Equal rates share the larger rank. A row with rate 0 never flips.
                flipped = N - np.searchsorted(np.sort(rates), rates, side="left")
                least = np.where(rates > 0, np.minimum(least, flipped / N), least)
    return least


def ldm_s(scores: Floats, features: Floats, n: int, rng: Generator) -> Integers:
    """Draw n rows that have small LDM and are far from each other (LDM-Seeding).

    The first pick has the smallest LDM. Each other one is drawn with a probability proportional to
    (gamma d)^2. d is the cosine distance to the nearest pick. gamma gives the n rows of smallest
    LDM and all other rows the same total weight; among the others it falls with the LDM.
    """
    order = np.argsort(scores, kind="stable")
    threshold = scores[order[n - 1]]
    if threshold == 0:
        positive = scores[scores > 0]
        threshold = positive.min() if len(positive) else 1.0
    gamma = np.exp(-np.maximum(scores - threshold, 0) / threshold)
    for part in (order[:n], order[n:]):
        gamma[part] /= max(gamma[part].sum(), 1e-300)

    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(lengths, 1e-12)
    picks = [int(order[0])]
    distance = np.full(len(scores), np.inf)
    while len(picks) < n:
        distance = np.minimum(distance, np.maximum(1 - unit @ unit[picks[-1]], 0))
        distance[picks] = 0
        chances = (gamma * distance) ** 2
        if chances.sum() == 0:  # only copies of picks are left
            rest = [row for row in order.tolist() if row not in set(picks)]
            return np.array(picks + rest[: n - len(picks)])
        picks.append(int(rng.choice(len(chances), p=chances / chances.sum())))
    return np.array(picks)


# ---- 3. The loop, as in the paper: 200 random labels, then 200 more in each round.


ROUNDS = 19
BATCH = 200
CANDIDATES = 2000


def run(
    data: tuple[Floats, Integers, Floats, Integers], strategy: str, seed: int, rounds: int = ROUNDS
) -> tuple[list[float], Integers, Layers]:
    """Return the test accuracy after each training, the labelled rows, and the last network.

    The seed decides initial labels, candidates and training, so that strategies are paired by it.
    """
    x, y, x_test, y_test = data
    classes = int(y.max()) + 1
    labelled: Integers = np.random.default_rng([seed, 0]).permutation(len(x))[:BATCH]
    accuracies = []
    for number in range(rounds + 1):
        rng = np.random.default_rng([seed, 1, number])
        layers = train(x[labelled], y[labelled], classes, rng)
        accuracies.append(float((predict(layers, x_test).argmax(axis=1) == y_test).mean()))
        if number == rounds:
            break

        # Ask: some candidates at random, and of those the strategy's choice.
        shuffled = np.random.default_rng([seed, 2, number]).permutation(len(x))
        unlabelled = shuffled[~np.isin(shuffled, labelled)][:CANDIDATES]
        picks: Integers = np.arange(BATCH)
        if strategy == "ldm-s":
            rng = np.random.default_rng([seed, 3, number])
            features = forward(layers, x[unlabelled])[-2].astype(np.float64)
            weight, bias = layers[-1]
            blocks = draw_directions(rng, classes, features.shape[1], RAYS // 2)
            picks = ldm_s(ldm(features, weight.T, bias, blocks), features, BATCH, rng)
        # Tell: here the labels are known.
        labelled = np.concatenate([labelled, unlabelled[picks]])
    return accuracies, labelled, layers


# ---- 4. The promise: with 95 % confidence, at most a share of the model's labels is wrong.


def p_value(size: int, drawn: int, wrong: int, limit: int, error: float) -> float:
    """Return a p-value of "more than ``limit`` of ``size`` labels are wrong", valid at any time.

    It is prior / posterior of the number of wrong labels that fits the draws best, under a
    beta-binomial prior. If it is the true number, this ratio is a martingale that begins at 1, and
    reaches 1 / alpha with a probability of at most alpha, however often one looks [Ville].
    """
    if limit >= size:
        return 0.0
    a, b = 1.0, (1 - 0.3 * error) / (0.3 * error)
    likeliest = wrong * (size + 1) // drawn if drawn else 0
    number = min(max(limit + 1, likeliest), size)
    right = drawn - wrong
    if number < wrong or size - number < right:
        return 0.0

    def log_beta(first: float, second: float) -> float:
        return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)

    def log_choose(total: int, chosen: int) -> float:
        return -math.log(total + 1) - log_beta(total - chosen + 1, chosen + 1)

    likelihood = log_choose(size - drawn, number - wrong) - log_choose(size, number)
    marginal = log_beta(a + wrong, b + right) - log_beta(a, b)
    return math.exp(min(likelihood - marginal, 0.0))


def promise(
    confidence: Floats, draws: Integers, is_wrong: npt.NDArray[np.bool_], error: float = 0.05
) -> float:
    """Return the share of the rest that the model may label.

    Steps are the 5 %, 10 %, ... of which the model is most confident. Each has a share of alpha,
    fixed before the draws; a step that passes hands its share on (the fallback procedure).

    Args:
        confidence: (N,) of the model in its label of each row of the rest.
        draws: (n,) rows of the rest, drawn at random without replacement and labelled by people.
        is_wrong: (n,) whether the model's label of each draw is wrong.
        error: the share of wrong labels that is allowed.
    """
    rank = np.empty(len(confidence), dtype=np.int64)
    rank[np.argsort(-confidence, kind="stable")] = np.arange(len(confidence))
    steps = 20
    alpha = 0.0
    share = 0.0
    for step in range(1, steps + 1):
        alpha += 0.05 / steps
        size = len(confidence) * step // steps
        in_step = is_wrong[rank[draws] < size]
        running = np.cumsum(in_step)
        limit = int(error * size)
        values = [p_value(size, n + 1, int(w), limit, error) for n, w in enumerate(running)]
        if min(values, default=1.0) <= alpha and running[-1] <= limit:
            share = step / steps  # passes, and keeps alpha for the next one
        else:
            alpha = 0.0
    return share


# ---- The comparison of the README.


def labels_to_reach(labels: Floats, curve: Floats, target: float) -> float:
    """Return the labels at which a curve first reaches an accuracy, by straight lines."""
    first = int(np.argmax(curve >= target))
    if first == 0 or curve[first] < target:
        return float(labels[0] if first == 0 and curve[0] >= target else labels[-1])
    share = (target - curve[first - 1]) / (curve[first] - curve[first - 1])
    return float(labels[first - 1] + share * (labels[first] - labels[first - 1]))


def compare(curves: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Return the gain of LDM-S over Random in points, and the labels that it saves."""
    ldm_s_curves = np.array(curves["ldm-s"])
    random_curves = np.array(curves["random"])
    gains = 100 * (ldm_s_curves - random_curves)[:, 1:].mean(axis=1)
    labels = 200.0 * np.arange(1, ldm_s_curves.shape[1] + 1)
    random = random_curves.mean(axis=0)
    needed = labels_to_reach(labels, ldm_s_curves.mean(axis=0), random[-1])
    baseline = labels_to_reach(labels, random, random[-1])
    return {
        "gain": float(gains.mean()),
        "gains": gains.tolist(),
        "labels_saved": 1 - needed / baseline,
        "curves": curves,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", help="also write the result as JSON to this file")
    arguments = parser.parse_args()

    arrays = np.load(arguments.file)
    x, y = arrays["x"].astype(np.float32), arrays["y"].astype(np.int64)
    low, high = x[:16_000].min(axis=0), x[:16_000].max(axis=0)
    x = (x - low) / (high - low)
    data = (x[:16_000], y[:16_000], x[16_000:], y[16_000:])

    jobs = [(name, seed) for name in ("ldm-s", "random") for seed in range(arguments.seeds)]
    with Pool(arguments.workers) as pool:
        results = pool.starmap(partial(run, data), jobs, chunksize=1)
    curves: dict[str, list[list[float]]] = {"ldm-s": [], "random": []}
    for (name, _), (accuracies, _, _) in zip(jobs, results, strict=True):
        curves[name].append(accuracies)
    result = compare(curves)
    print(f"LDM-S gains {result['gain']:+.2f} points over Random.")
    print(f"It saves {result['labels_saved']:.0%} of the labels.")

    # The rest of the first run: people label 300 draws of it, and the model perhaps the others.
    _, labelled, layers = results[0]
    rest = np.setdiff1d(np.arange(16_000), labelled)
    probabilities = predict(layers, data[0][rest])
    is_wrong = probabilities.argmax(axis=1) != data[1][rest]
    draws = np.random.default_rng(0).permutation(len(rest))[:300]
    share = promise(probabilities.max(axis=1), draws, is_wrong[draws])
    print(f"With at most 5% wrong labels, the model may label {share:.0%} of the rest.")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=1)


if __name__ == "__main__":
    main()

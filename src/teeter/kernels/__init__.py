"""Algorithms as pure functions of tensors, on CPU or GPU: one algorithm per file, named after it.

Kernels answer in positions of the tensors they were given and trust their arguments: strategies and
the public functions above them validate. So this package is internal: its names and arguments may
change in any release, and ``teeter.ldm``, ``teeter.select`` and ``teeter.scores`` are the way in.

Shapes use one set of symbols: N candidate rows, M reference rows, L labelled rows, C classes, D
features, R rays, S posterior samples, K clusters or factors, n picks.

=====================  ============================================================================
file                   what it computes
=====================  ============================================================================
``uncertainty``        entropy, margin, least confidence
``bald``               mutual information of posterior samples (BALD), BatchBALD, variation ratio
``ldm``                the least disagree metric, by rays and by the paper's Algorithm 1
``flip_rates``         how soon each row flips on each ray, for ``ldm``
``directions``         isotropic directions and directions in random subspaces, for ``ldm``
``ranks``              ranks by flip rate, for ``ldm``
``distances``          cosine and Euclidean distances without all pairs
``seeding``            LDM-Seeding and weighted k-means++
``streaming_seeding``  the same, with features that must be fetched
``badge``              BADGE
``bait``               BAIT
``kcenter``            greedy k-center (core-set)
``probcover``          ProbCover
``kmeans``             k-means
``clustering``         average linkage, typical rows (TypiClust), round robin (Cluster-Margin)
``several_labels``     MMC, CVIRS and rarity-weighted uncertainty, for rows with several labels
``facility_location``  facility location, herding, and lazy greedy maximisation
``perturbation``       ALFA-Mix and DropQuery
``galaxy``             GALAXY
``fused``              Triton versions of ``ldm`` and ``seeding`` for recent GPUs; see its README.md
=====================  ============================================================================

Four functions have the name of their file and are imported from there, because a package cannot
offer both under one name: ``bait.bait``, ``probcover.probcover``, ``flip_rates.flip_rates`` and
``facility_location.facility_location``.
"""

from __future__ import annotations

from teeter.kernels.badge import seed_gradients
from teeter.kernels.bald import batch_bald, mutual_information, variation_ratio
from teeter.kernels.clustering import average_linkage, round_robin, typical_rows
from teeter.kernels.directions import (
    Directions,
    SubspaceDirections,
    default_rays,
    draw_directions,
    ray_directions,
    subspace_directions,
)
from teeter.kernels.distances import Cosine, Distance, Euclidean
from teeter.kernels.kcenter import k_center
from teeter.kernels.kmeans import k_means
from teeter.kernels.ldm import (
    ldm_against_reference,
    ldm_by_gaussian,
    ldm_by_rays,
    paper_sigmas,
    search_by_gaussian,
)
from teeter.kernels.probcover import purity_radius
from teeter.kernels.seeding import ldm_log_weights, ldm_seeding, seed_rows
from teeter.kernels.streaming_seeding import seed_streaming
from teeter.kernels.uncertainty import entropy, least_confidence, margin

__all__ = [
    "Cosine",
    "Directions",
    "Distance",
    "Euclidean",
    "SubspaceDirections",
    "average_linkage",
    "batch_bald",
    "default_rays",
    "draw_directions",
    "entropy",
    "k_center",
    "k_means",
    "ldm_against_reference",
    "ldm_by_gaussian",
    "ldm_by_rays",
    "ldm_log_weights",
    "ldm_seeding",
    "least_confidence",
    "margin",
    "mutual_information",
    "paper_sigmas",
    "purity_radius",
    "ray_directions",
    "round_robin",
    "search_by_gaussian",
    "seed_gradients",
    "seed_rows",
    "seed_streaming",
    "subspace_directions",
    "typical_rows",
    "variation_ratio",
]

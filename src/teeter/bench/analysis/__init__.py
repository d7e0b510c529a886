"""Compare strategies: statistics over runs and datasets, figures, tables and reports.

Statistics and figures take arrays; ``compare_strategies`` and ``write_report`` take runs of the
benchmark, as ``teeter.bench.experiments.read_run`` returns them; the first also takes data frames.
"""

from teeter.bench.analysis.plots import (
    pca_2d,
    plot_curves,
    plot_gains,
    plot_labels,
    plot_penalties,
    plot_picks,
    plot_profile,
    plot_runtime,
)
from teeter.bench.analysis.report import Report, write_report
from teeter.bench.analysis.run_comparison import (
    Comparison,
    RunComparison,
    compare_strategies,
)
from teeter.bench.analysis.statistics import (
    Gain,
    LabelSaving,
    PenaltyMatrix,
    PerformanceProfile,
    gain_over,
    labels_to_reach,
    mean_and_std,
    mean_ranks,
    paired_t,
    penalty_matrix,
    performance_profile,
    rank_correlation,
    saving_over,
)
from teeter.bench.analysis.table_formats import round_rows, rounds_to_csv, write_rounds

__all__ = [
    "Comparison",
    "Gain",
    "LabelSaving",
    "PenaltyMatrix",
    "PerformanceProfile",
    "Report",
    "RunComparison",
    "compare_strategies",
    "gain_over",
    "labels_to_reach",
    "mean_and_std",
    "mean_ranks",
    "paired_t",
    "pca_2d",
    "penalty_matrix",
    "performance_profile",
    "plot_curves",
    "plot_gains",
    "plot_labels",
    "plot_penalties",
    "plot_picks",
    "plot_profile",
    "plot_runtime",
    "rank_correlation",
    "round_rows",
    "rounds_to_csv",
    "saving_over",
    "write_report",
    "write_rounds",
]

"""The HTML report on one or more runs, and the template machinery behind it."""

from teeter.bench.analysis.report.findings import cross_run_findings, run_findings
from teeter.bench.analysis.report.render import (
    Block,
    CodeBlock,
    DetailsBlock,
    ImageBlock,
    NotesBlock,
    ParagraphBlock,
    Report,
    ReportWriter,
    Section,
    TableBlock,
    render_page,
    write_report,
)

__all__ = [
    "Block",
    "CodeBlock",
    "DetailsBlock",
    "ImageBlock",
    "NotesBlock",
    "ParagraphBlock",
    "Report",
    "ReportWriter",
    "Section",
    "TableBlock",
    "cross_run_findings",
    "render_page",
    "run_findings",
    "write_report",
]

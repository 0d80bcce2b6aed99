"""Run folders -> a page, tables and figures. Computes no statistic: that is evaluation/'s room."""

from gcr_rl.report.document import write_report, write_summary
from gcr_rl.report.runs import RunData, load_runs
from gcr_rl.report.summary import (
    Comparison,
    MethodRow,
    Summary,
    TaskFacts,
    TaskSummary,
    summarise,
    task_facts,
)
from gcr_rl.report.text import format_table, latex_table, markdown_table

__all__ = [
    "Comparison",
    "MethodRow",
    "RunData",
    "Summary",
    "TaskFacts",
    "TaskSummary",
    "format_table",
    "latex_table",
    "load_runs",
    "markdown_table",
    "summarise",
    "task_facts",
    "write_report",
    "write_summary",
]

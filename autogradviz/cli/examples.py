"""One example of each command, which ends its help."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "demo": "autogradviz demo",
    "run": "autogradviz run train.py --lr 3e-4",
    "export": "autogradviz export step.agv -o step.parquet",
    "import-compile-trace": "autogradviz import-compile-trace logs/",
    "compare": "autogradviz compare before.agv after.agv",
    "show": "autogradviz show step.agv",
    "diagnose": "autogradviz diagnose step.agv",
    "audit": "autogradviz audit step.agv",
    "why": "autogradviz why step.agv 0.weight",
    "check": "autogradviz check train.py:step",
    "plan": "autogradviz plan train.py:step",
    "reproduce": "autogradviz reproduce step.agv",
    "svg": "autogradviz svg step.agv -o graph.svg",
    "html": "autogradviz html step.agv -o report.html",
    "watch": "autogradviz watch run.agv",
    "sql": 'autogradviz sql step.agv "SELECT op, count(*) FROM events GROUP BY op"',
    "mcp": "autogradviz mcp step.agv",
    "explain": "autogradviz explain graph-lost",
    "native": "autogradviz native status",
}

"""Write the scenes of the bug programs and of their corrected versions, one JSON object per line.

python tests/calibration/write_scenes.py FILE [EVERY]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import calibrate

from autogradviz.scene.payload import to_payload


def main(path, every):
    """Write the scene of every nth program as ``[name, payload]``."""
    with Path(path).open("w", encoding="utf-8") as file:
        for case in calibrate.CASES[::every]:
            module = calibrate.load(case)
            for name, work in (
                (case.stem, module.run),
                (f"{case.stem}, corrected", module.reference),
            ):
                trace, _ = calibrate.recorded(work)
                file.write(json.dumps([name, to_payload(trace._viewer_scene)]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], every=int((*sys.argv, 1)[2]))

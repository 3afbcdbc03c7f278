"""Run the code cells of a notebook in this process, and print their outputs as JSON.

    python run_notebook.py notebooks/03_gan_two_optimizers.ipynb

IPython's own shell runs the cells, so numbers of cells, displayed results and tracebacks are those
of a notebook. A kernel would take seconds to start.
"""

import json
import sys
from pathlib import Path

import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def run(path):
    """Yield the outputs of each code cell: printed text, types of displayed data, and the error."""
    shell = InteractiveShell.instance()
    shell.colors = "nocolor"
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            with capture_output() as captured:
                result = shell.run_cell("".join(cell["source"]), store_history=True)
            error = result.error_before_exec or result.error_in_exec
            yield {
                "text": captured.stdout.partition(f"Out[{shell.execution_count - 1}]: ")[0],
                "warnings": captured.stderr,
                "result": repr(result.result) if result.result is not None else "",
                "kinds": sorted({kind for shown in captured.outputs for kind in shown.data}),
                "error": repr(error) if error else "",
            }


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(list(run(Path(sys.argv[1])))))

"""The lines that create optimizers, among several in the files of the user."""

from autogradviz.analysis.types import SourceLocation
from autogradviz.diagnose.source.parameters_replaced_after_optimizer import optimizer_lines


def test_of_several_files_that_of_the_innermost_frame_with_one_is_taken(tmp_path):
    loop, layer = tmp_path / "loop.py", tmp_path / "layer.py"
    loop.write_text("def train():\n    optimizer.step()\noptimizer = SGD(parameters)\ntrain()\n")
    layer.write_text("def try_it():\n    optimizer = SGD(parameters)\n    optimizer.step()\n")
    step = [
        SourceLocation(filename=str(loop), lineno=2, function="train", text=""),
        SourceLocation(filename=str(loop), lineno=4, function="<module>", text=""),
    ]
    (line,) = optimizer_lines([str(loop), str(layer)], {"SGD"}, step)
    assert (line.filename, line.lineno) == (str(loop), 3)
    assert len(optimizer_lines([str(loop), str(layer)], {"SGD"}, [])) == 2

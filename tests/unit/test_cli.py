"""The command line: output, files and errors."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import make_log as m
import pytest

import autogradviz
from autogradviz import event_log
from autogradviz.cli import main
from autogradviz.cli.output_files import TraceFile
from autogradviz.cli.subcommand_and_exit_codes import EXAMPLES
from autogradviz.events import StepEnded

WRITERS = "Traces are written by trace.save() and autogradviz run."
TITLE = "ExpBackward0.result was written before backward needed it"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(path, *more):
    facts = [
        m.began(torch_version="2.13.0"),
        m.op("exp", (1,), nr=0, at="train.py:4"),
        m.node(1, "ExpBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0),
        *more,
    ]
    event_log.save(m.make_log(facts, m.ended(event_count=len(m.make_log(facts)))), path)
    return str(path)


def save_failing(path):
    return save(
        path,
        m.op("add_", (1,), inputs=(1,), writes=(1,), at="train.py:5"),
        m.bumped("aten.add_.Tensor", op_seq=5, at="train.py:5"),
        m.backward(roots=(1,)),
        m.started(1),
        m.unpacked(1, seen=1, node=1),
        m.raised("RuntimeError", "modified by an inplace operation: is at version 1", node=1),
        m.backward_ended(failed=True),
    )


def run(*arguments):
    return main([str(argument) for argument in arguments])


def shown(capsys, path):
    assert run("show", path) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_show_prints_a_summary_of_the_trace(folder, capsys):
    lines = shown(capsys, save_failing(folder / "x.agv"))
    assert lines[0] == "x.agv  torch 2.13.0"
    assert lines[1:3] == [
        "steps   none ended; 1 backward",
        "graph   1 node, 0 edges",
    ]
    assert "saved   32 B held at peak, 32 B saved, 32 B still held; 1 storage" in lines
    assert lines[lines.index("held at peak, by module") + 1].split()[:2] == ["32", "B"]
    assert lines[lines.index("findings") + 1].split()[:2] == ["certain", "ExpBackward0.result"]
    assert any(line.endswith("train.py:5") for line in lines)


def test_show_gives_the_least_and_the_most_of_blocks_of_different_sizes(folder, capsys):
    facts = [
        [
            m.module(i + 1, f"blocks.{i}"),
            m.entered_module(i, i + 1, nr=i),
            m.op("exp", (i + 1,), inputs=(50,), nr=i, call=i),
            m.exited_module(i, nr=i + 1),
            m.node(i, "ExpBackward0", nr=i),
            m.tensor(i + 1, storage_nbytes=nbytes),
            m.saved(i, i + 1, node=i, slot="result", nr=i),
        ]
        for i, nbytes in enumerate((521_000, 255_000, 255_000))
    ]
    event_log.save(m.make_log([m.began(model_name="GPT"), facts]), folder / "x.agv")
    lines = shown(capsys, folder / "x.agv")
    place = lines.index("held at peak, by module")
    assert lines[place + 1].startswith("  1.0 MB")
    assert lines[place + 1].endswith("blocks.*  3 blocks, 255 kB to 521 kB each")


def test_show_sums_steps_memory_and_recomputations(folder, capsys):
    blocks = [
        [
            m.module(i + 1, f"blocks.{i}"),
            m.entered_module(i, i + 1, nr=i),
            m.op("exp", (i + 1,), inputs=(50,), nr=i, call=i, duration_ns=2_000_000),
            m.exited_module(i, nr=i + 1),
            m.node(i, "ExpBackward0", nr=i),
            m.tensor(i + 1, storage_nbytes=1_000_000),
            m.saved(i, i + 1, node=i, slot="result", nr=i),
        ]
        for i in range(3)
    ]
    regions = [
        [
            m.entered(i, call=i),
            m.exited(i),
            m.recompute(i, i),
            m.recomputed(i),
        ]
        for i in range(2)
    ]
    facts = [
        m.began(torch_version="2.13.0", model_name="GPT"),
        m.module(0, ""),
        blocks,
        m.tensor(9, storage_nbytes=500_000),
        m.op("sum", (9,), nr=9),
        m.node(9, "SumBackward0", nr=9),
        m.saved(9, 9, node=9, slot="self", nr=9),
        m.backward(),
        regions,
        m.backward_ended(),
        [m.fact(StepEnded, step=n, end_seq=0) for n in (7, 8)],
    ]
    event_log.save(m.make_log(facts), folder / "x.agv")
    lines = shown(capsys, folder / "x.agv")
    assert "steps       2 ended (7 to 8) and one that did not end, 1 backward" in lines
    assert "saved       3.5 MB held at peak, 3.5 MB saved, 3.5 MB still held; 4 storages" in lines
    place = lines.index("held at peak, by module")
    bars = [line.split() for line in lines[place + 1 : place + 3]]
    assert [bar[:2] + bar[3:] for bar in bars] == [
        ["3.0", "MB", "blocks.*", "3", "blocks,", "1.0", "MB", "each"],
        ["500", "kB", "no", "module"],
    ]
    assert [len(bar[2]) for bar in bars] == [24, 4]
    place = lines.index("recomputed, by module")
    assert lines[place + 1].split()[:3] == ["blocks.*", "2", "times"]
    (checkpoint,) = (line for line in lines if line.startswith("checkpoint"))
    assert checkpoint.split()[1:5] == ["2", "regions,", "2", "recomputations"]


def test_show_counts_nested_backwards_separately(folder, capsys):
    nested = [m.backward(1), m.backward(2, parent=1), m.backward_ended(2), m.backward_ended(1)]
    event_log.save(m.make_log(nested, m.backward(3), m.backward_ended(3)), folder / "x.agv")
    assert "steps  none ended; 2 backwards (1 more inside)" in shown(capsys, folder / "x.agv")


def test_diagnose_reports_the_line_to_change(folder, capsys):
    assert run("diagnose", save_failing(folder / "x.agv")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(TITLE)
    assert any(line.split()[:2] == ["culprit", "train.py:5,"] for line in lines)


def test_audit_and_why_print_text_and_json(folder, capsys):
    path = save_failing(folder / "x.agv")
    trace = autogradviz.load(path)
    assert run("audit", path) == 0
    assert capsys.readouterr().out == f"{trace.audit()}\n"
    assert run("audit", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["mechanism"] == trace.audit()[0].mechanism
    assert run("why", path, "error") == 0
    assert capsys.readouterr().out == f"{trace.why('error')}\n"
    assert run("why", path, "error", "--json") == 0
    assert json.loads(capsys.readouterr().out)["question"] == "raised"


def test_why_suggests_a_name_or_says_that_there_is_none(folder, capsys):
    assert run("why", save_failing(folder / "x.agv"), "wieght") == 2
    assert "no parameter, module, variable or node is named 'wieght'" in capsys.readouterr().err


def test_diagnose_prints_findings_as_json(folder, capsys):
    path = save_failing(folder / "x.agv")
    assert run("diagnose", path, "--json") == 0
    (finding,) = json.loads(capsys.readouterr().out)
    (expected,) = autogradviz.load(path).diagnose()
    assert finding["slug"] == "saved-tensor-mutated"
    assert (finding["culprit"]["filename"], finding["culprit"]["lineno"]) == ("train.py", 5)
    assert {**finding, "culprit": None, "victim": None} == {
        "slug": expected.slug,
        "title": TITLE,
        "culprit": None,
        "victim": None,
        "explanation": expected.explanation,
        "fix": expected.fix,
        "confidence": "certain",
        "mechanism": "write",
        "caught": False,
        "events": list(expected.events),
        "nodes": [1],
        "region_id": None,
        "changes": [],
        "fingerprint": finding["fingerprint"],
        "culprit_run": {
            "op": "aten.add_.default",
            "phase": "forward",
            "step": None,
            "count": 1,
        },
        "code": "AGV101",
        "applicability": "needs review",  # the log has no text of the line
        "state": "new",
        "allowed": "",
        "query": "unpacked-changed",
    }


def test_trace_without_errors_has_no_findings(folder, capsys):
    path = save(folder / "x.agv")
    assert run("diagnose", path) == 0
    assert run("diagnose", path, "--json") == 0
    assert capsys.readouterr().out == "No findings.\n[]\n"


def test_svg_and_html_are_written_to_the_current_directory_by_default(folder, capsys):
    (folder / "traces").mkdir()
    path = save(folder / "traces" / "x.agv")
    assert run("svg", path) == 0
    assert run("html", path, "-o", "report.html") == 0
    assert sorted(p.name for p in folder.iterdir()) == ["report.html", "traces", "x.svg"]
    assert (folder / "x.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "x.svg",
        "report.html",
    ]


def test_svg_accepts_a_depth_and_a_theme(folder):
    path = save(folder / "x.agv")
    assert run("svg", path, "--depth", 0, "--theme", "dark", "-o", "dark.svg") == 0
    expected = autogradviz.load(path).graph(depth=0).svg(theme="dark")
    assert (folder / "dark.svg").read_text(encoding="utf-8") == expected


def test_trace_itself_is_never_overwritten(folder, capsys):
    path = save(folder / "x.agv")
    before = (folder / "x.agv").read_bytes()
    assert run("html", path, "-o", "x.agv") == 2
    assert (folder / "x.agv").read_bytes() == before
    assert capsys.readouterr().err == (
        "autogradviz: x.agv is the trace itself; name another file with -o [autogradviz-error]\n"
    )


@pytest.mark.parametrize("command", ["svg", "html"])
@pytest.mark.parametrize("precious", ["print('my program')\n", "a trace", "the other command's"])
def test_picture_or_report_replaces_only_its_own_kind(folder, capsys, command, precious):
    path, out = save(folder / "x.agv"), folder / "out"
    assert run(command, path, "-o", out) == run(command, path, "-o", out) == 0
    assert not list(folder.glob(".*"))
    out.unlink()
    if precious == "a trace":
        save(out)
    elif precious == "the other command's":
        run("html" if command == "svg" else "svg", path, "-o", out)
    else:
        out.write_text(precious)
    before = out.read_bytes()
    assert run(command, path, "-o", out) == 2
    assert out.read_bytes() == before
    assert "out exists already" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["svg", "html", "export"])
def test_overwrite_replaces_any_file(folder, capsys, command):
    path, out = save(folder / "x.agv"), folder / "out.dot"
    out.write_text("precious")
    assert run(command, path, "-o", out) == 2
    assert out.read_text() == "precious"
    assert run(command, path, "-o", out, "--overwrite") == 0
    assert "precious" not in out.read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith(f"{out} (")


def test_old_trace_is_deleted_once_and_only_if_named_by_the_user(folder):
    (folder / "old.agv").write_text("old")
    with pytest.raises(FileExistsError, match="old.agv exists already"):
        TraceFile(Path("old.agv"), "train", overwrite=False).check()
    file = TraceFile(Path("old.agv"), "train", overwrite=True)
    file.check()
    assert (folder / "old.agv").read_text() == "old"
    file.delete_old()
    assert not file.path.exists()
    file.path.write_text("new")
    file.delete_old()
    assert file.path.read_text() == "new"


def test_directory_is_never_overwritten(folder):
    (folder / "old.agv").mkdir()
    file = TraceFile(Path("old.agv"), "train", overwrite=True)
    with pytest.raises(FileExistsError):
        file.check()
    file.delete_old()
    assert (folder / "old.agv").is_dir()


def test_failed_report_keeps_the_old_report(folder, monkeypatch):
    trace = autogradviz.load(save(folder / "x.agv"))
    trace.html("report.html")
    before = (folder / "report.html").read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace.html("report.html")
    assert (folder / "report.html").read_bytes() == before
    assert not list(folder.glob(".*"))


def test_picture_can_be_written_to_a_device_and_through_a_link(folder):
    view = autogradviz.load(save(folder / "x.agv")).graph()
    view.svg(os.devnull)
    (folder / "link.svg").symlink_to(folder / "real.svg")
    for _ in range(2):
        view.svg("link.svg")
    assert (folder / "link.svg").is_symlink()
    assert (folder / "real.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("command", ["show", "diagnose", "svg", "html"])
@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("absent.agv", "absent.agv: No such file or directory"),
        (".", "autogradviz: . is a folder"),
        (
            "empty.agv",
            f"empty.agv is empty. {WRITERS} [not-a-trace]",
        ),
    ],
)
def test_invalid_trace_prints_one_line_and_exits_with_2(folder, capsys, command, path, complaint):
    (folder / "empty.agv").touch()
    assert run(command, path) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("autogradviz: ")
    assert complaint in err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stp.agv", "did you mean step.agv?"),
        ("other.agv", "the folder has a1.agv, a2.agv, a3.agv and 1 other"),
        ("no/step.agv", "there is no folder no"),
        ("empty/x.agv", "autogradviz run SCRIPT.py writes a trace"),
    ],
)
def test_missing_trace_is_answered_with_what_is_there(folder, capsys, name, hint):
    (folder / "empty").mkdir()
    for file in ("step.agv", "a1.agv", "a2.agv", "a3.agv"):
        (folder / file).touch()
    assert run("show", name) == 2
    error = f"autogradviz: {name}: No such file or directory; {hint}\n"
    assert capsys.readouterr() == ("", error)


def test_report_in_place_of_a_trace_is_recognized(folder, capsys):
    autogradviz.load(save(folder / "x.agv")).html("report.html")
    assert run("show", "report.html") == 2
    assert f"{WRITERS} A report opens in a browser." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["svg", "html"])
@pytest.mark.parametrize("target", ["absent/x.out", "folder"])
def test_unwritable_output_prints_one_line_and_exits_with_2(folder, capsys, command, target):
    (folder / "folder").mkdir()
    assert run(command, save(folder / "x.agv"), "-o", target) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"autogradviz: {target}: ")


def test_unreadable_file_prints_one_line_and_exits_with_2(folder, capsys, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("autogradviz.distributed_runs.run.open_any", refuse)
    assert run("show", "x.agv") == 2
    assert capsys.readouterr() == ("", "autogradviz: x.agv: Permission denied\n")


def test_truncated_trace_is_diagnosed_up_to_its_end(folder, capsys):
    path = folder / "x.agv"
    event_log.save(m.make_log(m.began(), m.node(1, "ExpBackward0")), path)
    assert run("diagnose", path) == 0
    assert capsys.readouterr() == (
        "No findings.\n",
        f"autogradviz: {path}: the recording has no end: it stops after 2 events\n",
    )


@pytest.mark.parametrize("arguments", [["svg"], ["svg", "x.agv", "--depth", "-1"]])
def test_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: autogradviz")
    assert printed.endswith(f"example: {EXAMPLES['svg']}\n")


def test_version_is_the_version_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"autogradviz {autogradviz.__version__}\n"


def python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        check=False,
        **options,
    )


def test_commands_read_traces_without_torch(folder):
    path = save_failing(folder / "x.agv")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from autogradviz.cli import main\n"
        "print([main([command, sys.argv[1]]) for command in ('show', 'diagnose', 'svg', 'html')])\n"
        "print(main(['demo', '-o', 'demo']))"
    )
    done = python(code, path, text=True)
    assert done.returncode == 0, done.stderr
    assert "[0, 0, 0, 0]\n2\n" in done.stdout
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("autogradviz: ")
    assert "torch" in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["x.agv", "x.html", "x.svg"]


@pytest.mark.parametrize("arguments", [["show"], ["diagnose", "--json"]])
def test_closed_output_pipe_ends_the_program_quietly(folder, arguments):
    code = (
        "import sys, os; from autogradviz.cli import main\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = python(code, *arguments, save(folder / "x.agv"))
    assert (done.returncode, done.stderr) == (141, b"")


def test_ascii_terminal_gets_escaped_text(folder):
    code = "import sys; from autogradviz.cli import main; sys.exit(main(sys.argv[1:]))"
    path = save(folder / "x.agv", m.raised("Error", "naïve ⚠"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = python(code, "show", path, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"na\\xefve \\u26a0" in done.stdout


def test_explain_prints_a_page(capsys):
    assert main(["explain", "graph-lost"]) == 0
    assert capsys.readouterr().out.startswith("The loss has no graph  [graph-lost]\n")


def test_explain_without_a_name_lists_all_pages(capsys):
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 40
    title = "A saved tensor was written before backward needed it"
    assert f"saved-tensor-mutated {title}" in [" ".join(line.split()) for line in lines]
    slugs = [line.split()[0] for line in lines]
    findings = slugs[: slugs.index("saved-tensor-mutated")]
    assert findings == sorted(findings)


@pytest.mark.parametrize(
    ("message", "first"),
    [
        ("grad can be implicitly created only for scalar outputs", "[loss-not-scalar]"),
        ("element 0 of tensors does not require grad and does not have a grad_fn", "[graph-lost]"),
        ("modified by an inplace operation", "saved-tensor-mutated "),
        ("Trying to backward through the graph a second time", "graph-freed "),
    ],
)
def test_explain_finds_the_pages_about_a_message_of_pytorch(message, first, capsys):
    assert main(["explain", *message.split()]) == 0
    assert first in capsys.readouterr().out


def test_explain_suggests_names_similar_to_an_unknown_name(capsys):
    assert main(["explain", "graph-list"]) == 2
    assert "did you mean graph-lost" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ("svg", "step.agv", "-o", "no/x.svg"),
    ("export", "step.agv", "-o", "no/x.sqlite"),
    ("export", "step.agv", "-o", "no/x.parquet"),
    ("export", "step.agv", "-o", "step.agv/x.db"),
])  # fmt: skip
def test_output_in_a_folder_that_does_not_exist_is_one_line(folder, capsys, arguments):
    save("step.agv")
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    there = r"No such file or directory; there is no folder no|Not a directory"
    assert re.fullmatch(rf"autogradviz: {arguments[-1]}: ({there})\n", error)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that refuses files")
@pytest.mark.parametrize("suffix", [".svg", ".sqlite", ".parquet", ".json"])
def test_output_in_a_folder_without_permission_is_one_line(folder, capsys, suffix):
    save("step.agv")
    command = "svg" if suffix == ".svg" else "export"
    assert run(command, "step.agv", "-o", f"/proc/x{suffix}") == 2
    error = capsys.readouterr().err
    assert error == f"autogradviz: /proc/x{suffix}: No such file or directory\n"


@pytest.mark.parametrize("command", [
    ("diagnose", "torn.agv"),
    ("svg", "torn.agv"),
    ("html", "torn.agv"),
    ("show", "torn.agv"),
    ("html", "--compare", "torn.agv", "whole.agv", "-o", "x.html"),
    ("export", "torn.agv", "-o", "x.json"),
    ("compare", "whole.agv", "torn.agv"),
])  # fmt: skip
def test_every_command_says_that_a_file_is_torn(folder, capsys, command):
    content = Path(save("whole.agv")).read_bytes()
    Path("torn.agv").write_bytes(content[: len(content) // 2])
    assert run(*command) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "autogradviz: torn.agv: the file is cut off or damaged; nothing is left"
    )
    assert error.count("\n") == 1


def test_findings_of_a_torn_file_are_those_of_its_rest(folder, capsys):
    content = Path(save("whole.agv")).read_bytes()
    Path("torn.agv").write_bytes(content[: len(content) // 2])
    assert run("diagnose", "torn.agv") == 1
    assert capsys.readouterr().out == "No findings in what is left of the file.\n"


@pytest.mark.parametrize("command", ["svg", "html"])
def test_file_without_its_graph_is_not_drawn(folder, capsys, command):
    content = Path(save("whole.agv")).read_bytes()
    assert run(command, "whole.agv", "-o", f"whole.{command}") == 0
    Path("torn.agv").write_bytes(content[: len(content) // 2])
    assert run(command, "torn.agv") == 1
    error = capsys.readouterr().err
    assert error.startswith("autogradviz: torn.agv: the file is cut off or damaged; nothing is")
    assert not Path(f"torn.{command}").exists()


@pytest.mark.parametrize("name", ["notes.txt", "pipe", "folder"])
def test_watch_refuses_what_is_no_trace(folder, capsys, name):
    Path("notes.txt").write_text("precious\n" * 100)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    assert run("watch", "--no-browser", name) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"autogradviz: {name} is ")
    assert error.endswith("[not-a-trace]\n")


def test_detail_without_region_is_an_error(folder, capsys):
    save("step.agv")
    with pytest.raises(SystemExit, match="2"):
        run("svg", "step.agv", "--detail", "lines")
    assert "--detail needs --region" in capsys.readouterr().err


def test_run_names_a_missing_folder_before_the_program_starts(folder, capsys):
    Path("train.py").write_text("print('started')")
    assert run("run", "-o", "no/step.agv", "train.py") == 2
    printed = capsys.readouterr()
    assert printed.err == (
        "autogradviz: no/step.agv: No such file or directory; there is no folder no\n"
    )
    assert printed.out == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("absent.agv", "absent.agv: No such file or directory"),
        (
            "notes.agv",
            f"notes.agv is not an autogradviz trace. {WRITERS}",
        ),
        ("whole.agv", "whole.agv: there is no finding in the trace"),
    ],
)
def test_break_at_a_finding_names_the_problem_of_the_trace(folder, capsys, name, problem):
    Path("train.py").touch()
    Path("notes.agv").write_text("precious\n" * 100)
    save("whole.agv")
    assert run("run", "--break", "finding", "train.py", name) == 2
    assert capsys.readouterr().err.startswith(f"autogradviz: {problem}")


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("diff", "did you mean compare?"),
        ("diagnos", "did you mean diagnose?"),
        ("train.py", "to record it: autogradviz run train.py"),
        ("step.agv", "to open it: autogradviz html step.agv"),
        ("xyzzy", "autogradviz --help lists all"),
    ],
)
def test_unknown_command_is_answered_with_a_known_one(capsys, word, answer):
    assert main([word, "a", "b"]) == 2
    assert capsys.readouterr().err == f"autogradviz: there is no command {word!r}; {answer}\n"


def test_without_arguments_the_help_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert "diagnose" in capsys.readouterr().out


def test_messages_name_only_packages_that_pip_can_install():
    """Our own extras cannot: the documented installation is from a checkout."""
    root = Path(autogradviz.__file__).parent
    known = (root.parent / "pyproject.toml").read_text(encoding="utf-8")
    texts = [p.read_text(encoding="utf-8") for p in root.rglob("*") if p.suffix in {".py", ".md"}]
    named = {n for text in texts for n in re.findall(r"pip install ['\"]?([\w\[\]-]+)", text)}
    assert named >= {"duckdb", "pandas", "perfetto"}
    assert {name for name in named if f'  "{name}' not in known} == set()


def test_data_frames_without_pandas_name_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(autogradviz.MissingExtraError, match="pip install pandas"):
        autogradviz.Trace(m.make_log()).to_pandas()


START_PROCESSES = {"demo", "reproduce", "run"}  # each has tests of its own
WAIT = {"mcp", "watch"}
NEED_MORE = {"check", "import-compile-trace", "plan"}  # PyTorch, and logs of a compiler
RUN = sorted(EXAMPLES.keys() - START_PROCESSES - WAIT - NEED_MORE)


def test_help_of_each_command_ends_with_its_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name, example in EXAMPLES.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert capsys.readouterr().out.endswith(f"example: {example}\n")
        assert shlex.split(example)[:2] == ["autogradviz", name]


@pytest.mark.parametrize("name", RUN)
def test_example_of_a_command_runs(folder, name, capsys):
    if name == "sql":
        pytest.importorskip("duckdb")
    for file in ("step.agv", "before.agv", "after.agv"):
        save(folder / file, m.parameter(1, "net.0.weight"))
    assert main(shlex.split(EXAMPLES[name])[1:]) == 0
    output = [word for word in shlex.split(EXAMPLES[name]) if "." in word][-1:]
    assert capsys.readouterr().out
    assert name not in {"svg", "html", "export"} or (folder / output[0]).stat().st_size > 100


@pytest.mark.parametrize("command", ["check", "plan"])
def test_function_that_requires_arguments_is_answered_in_one_line(folder, capsys, command):
    pytest.importorskip("torch")
    (folder / "train.py").write_text("def train(model, x=1):\n    return model(x)\n")
    assert main([command, "train.py:train"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "train takes (model): write a function without required arguments" in line


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("def step(:\n", '  File "wrong.py", line 1'),
        ("import torch\nnothing.there\n", "Traceback (most recent call last):"),
    ],
)
def test_script_that_fails_is_answered_with_its_own_traceback(folder, capsys, text, first):
    (folder / "wrong.py").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["check", "wrong.py:step"])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(first)
    assert "script_function_argument" not in printed
    assert "runpy" not in printed


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["run", "--step", "3", "train.py"],
            "unrecognized arguments: --step; did you mean --steps?",
        ),
        (["html", "step.agv", "--theme", "blue"], "unrecognized arguments: --theme blue\n"),
        (["native", "bild"], "example: autogradviz native status\n"),
        (
            ["check", "exits.py:step"],
            "put what it does, apart from definitions, below: if __name__",
        ),
        (["--verson"], "there is no option '--verson' before a command; did you mean --version?"),
        (["check", "train.py"], "train.py names no function; write train.py:FUNCTION"),
        (["check", "train.py:stp"], "train.py has no 'stp'; did you mean 'step'?"),
        (["check", "train.py:run_it"], "train.py has no 'run_it'; its functions are step"),
        (["check", "train.py:step", "--model", "net"], "train.py has no 'net'"),
        (
            ["check", "needs.py:step"],
            "needs.py imports 'package_that_nobody_has', which is not installed for",
        ),
        (["plan", "needs.py:step"], "needs.py imports 'package_that_nobody_has'"),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(folder, capsys, arguments, answer):
    (folder / "train.py").write_text("def step():\n    pass\n")
    (folder / "needs.py").write_text("import package_that_nobody_has\n")
    (folder / "exits.py").write_text("import sys\ndef step():\n    pass\nsys.exit(3)\n")
    with contextlib.suppress(SystemExit):
        assert main(arguments) == 2
    assert answer in capsys.readouterr().err


HELP_WITHOUT_PACKAGES = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"torch", "pyarrow", "anywidget", "rich"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from autogradviz.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--help"], 0, "print a summary of a trace"),
        (["shw"], 2, "did you mean show"),
        (["show", "x.agv"], 2, "is needed, and is not installed for"),
        (["run", "train.py"], 2, "is needed, and is not installed for"),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments, code, printed):
    command = [sys.executable, "-c", HELP_WITHOUT_PACKAGES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, printed in done.stdout + done.stderr) == (code, True)
    assert "Traceback" not in done.stderr

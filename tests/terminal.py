"""Run a program on a pseudoterminal, as a person does who answers its debugger."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def run_in_terminal(arguments, lines, *, prompts=("(Pdb) ", "ipdb> ", "(Pdb++) "), **options):
    """Run Python with some arguments; type a line at each prompt, then end of file.

    Returns:
        Its exit code and all that it wrote.
    """
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | options.pop("env", {}),
        **options,
    )
    os.close(theirs)
    written, waiting, answered = b"", list(lines), 0
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # all have closed their end
            break
        if not part:
            break
        written += part
        text = written.decode(errors="replace")
        if text[answered:].endswith(prompts):
            answered = len(text)
            os.write(ours, (waiting.pop(0) if waiting else "c").encode() + b"\n")
    os.close(ours)
    return process.wait(), written.decode(errors="replace").replace("\r\n", "\n")

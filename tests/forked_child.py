"""Functions that run in a forked child."""

from __future__ import annotations

import os
import select
import signal

CHILD_SECONDS = 60


def run_in_child(work):
    """Return the result of a function in a forked child as text; a child that hangs is killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        # The child may hang before ``os.fork`` returns there.
        if not select.select([pipe], [], [], CHILD_SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
        output = pipe.read()
    os.waitpid(child, 0)
    return output

"""A process that forks interpreters with PyTorch and autogradviz already imported.

``interpreters.py`` starts it and sends it requests. A forked child continues like
``python <arguments>``: with its own ``__main__``, arguments, search path, environment, working
directory and standard streams. It differs from a new interpreter in four ways: modules are already
imported, and their objects frozen in the garbage collector; the hash seed is that of the server;
the frames of this file are below those of the program; cycles that are alive at the end are not
collected.
"""

import builtins
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
from functools import partial
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType

HEADER = 8  # bytes of the length of a request
STREAMS = 3  # stdin, stdout, stderr; the fourth descriptor of a request takes pid and status
IMPORTED = (
    *("numpy", "torch", "torch._dynamo", "torch.utils.checkpoint", "torch.utils.flop_counter"),
    *("autogradviz.cli.run", "autogradviz.cli.run_as_main", "autogradviz.recorder.recorder"),
    *("autogradviz.analysis", "autogradviz.diagnose", "autogradviz.event_log"),
    *("autogradviz.render.terminal_text", "autogradviz.scene"),
)


def serve(connection):
    """Answer requests until the connection ends; return each request in a separate child."""
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses = {}  # pid: descriptor for its exit status
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        waiting.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in waiting.select()}
            if ended in ready:
                ended.recv(1024)
                report_ended(statuses)
            if connection in ready:
                request, descriptors = receive(connection)
                if not fork_child(descriptors, statuses):
                    break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in statuses.values():
        os.close(descriptor)
    for end in (connection, ended, wake):
        end.close()
    return request


def fork_child(descriptors, statuses):
    """Fork; return the pid of the child in the server, and 0 in the child, with new streams."""
    child = os.fork()
    *streams, status = descriptors
    if child == 0:
        for stream, descriptor in enumerate(streams):
            os.dup2(descriptor, stream)
    else:
        statuses[child] = os.dup(status)
        os.write(status, b"%d\n" % child)
    for descriptor in descriptors:
        os.close(descriptor)
    return child


def report_ended(statuses):
    """Send the exit status of every child that has ended."""
    while statuses:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        descriptor = statuses.pop(child)
        os.write(descriptor, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(descriptor)


def receive(connection):
    """Return one request and the descriptors sent with it; exit at the end of the connection."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER, STREAMS + 1)
    if not header:
        sys.exit()
    length, content = int.from_bytes(header, "big"), b""
    while len(content) < length:
        content += connection.recv(length - len(content))
    return json.loads(content), descriptors


def run(arguments, folder, environment, own_path):
    """Continue as ``python <arguments>``: ``-c code``, ``-m module`` or a script, and its own."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.orig_argv[1:] = arguments
    added = environment.get("PYTHONPATH", "")
    added = [os.path.abspath(entry) for entry in added.split(os.pathsep) if entry]
    main = ModuleType("__main__")
    main.__builtins__ = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    kind, *rest = arguments
    if kind == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        sys.path[:] = [os.getcwd(), *added, *own_path]
        main.__loader__ = BuiltinImporter
        runpy._run_module_as_main(rest[0])
        return
    if kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        sys.path[:] = ["", *added, *own_path]
        main.__loader__ = BuiltinImporter
        filename, source = "<string>", rest[0]
    else:
        sys.argv[:] = arguments
        filename = os.path.join(os.getcwd(), kind)
        sys.path[:] = [os.path.dirname(os.path.realpath(filename)), *added, *own_path]
        main.__dict__.update(
            __file__=filename, __cached__=None, __loader__=SourceFileLoader("__main__", filename)
        )
        with open(filename, "rb") as file:
            source = file.read()
    exec(compile(source, filename, "exec", dont_inherit=True), main.__dict__)


def show_without_server(show, kind, error, traceback):
    """Forward an exception without the frames of this file, which are the outermost."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    show(kind, error.with_traceback(traceback), traceback)


if __name__ == "__main__":
    own = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    own_path = [entry for entry in sys.path[1:] if entry not in own]
    # A CUDA build imports Triton, whose binding prints frozen objects as leaks at exit.
    sys.modules["triton"] = None
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("chosen_device").enter()
    sys.modules["autogradviz.diagnose.rule"].all_rules()  # imports the rules
    server = sys.modules["__main__"]  # keep it alive: its functions are called after it is replaced
    gc.collect()
    gc.freeze()  # a collection in a child would visit, and so copy, the pages of all objects
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        run(**request, own_path=own_path)
    except BaseException:
        sys.excepthook = partial(show_without_server, sys.excepthook)
        raise
    finally:
        gc.freeze()  # otherwise finalization copies every page: one second per child

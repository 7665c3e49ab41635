"""Python commands in forks of a process that has imported everything, instead of a new interpreter for each command.

`Popen` and `run` take the arguments of their namesakes in `subprocess`, for commands `[sys.executable, "-m", "townlet",
…]`, `[sys.executable, "-c", code, …]` and `[sys.executable, "script.py", …]`, each with an optional `-W error`
before it. Each worker of pytest starts one server when it is first needed. The server never uses a second thread, so
forking it is safe. A command with the environment of `Shim.env` runs under the shim. What depends on the start of an
interpreter (imports, PYTHONHASHSEED) still needs `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from crash import shim

PR_SET_PDEATHSIG = 1
HASH_SEED = "2"  # PYTHONHASHSEED of the server
MESSAGE = 1 << 20  # bytes, above the size of any environment


class Popen(subprocess.Popen[Any]):
    """A command in a fork of the server; signals, pipes and exit codes are those of a real process.

    With `terminal`, its standard input must be a terminal, which becomes its controlling one and takes all its output.
    """

    def __init__(self, command: list[str], *, terminal: bool = False, **options: Any) -> None:
        self._terminal = terminal
        super().__init__(command, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        assert args[0] == sys.executable, "only Python can be forked"
        assert args[1] in ("-m", "-c", "-W") or not args[1].startswith("-"), "options of Python need a real interpreter"
        assert rest[1] is None, "preexec_fn needs a real interpreter"
        assert not rest[3], "pass_fds needs a real interpreter"
        cwd, env, pipes = rest[4], rest[5], rest[9:15]  # of pipes: read and write end of stdin, stdout and stderr
        streams = [fd if fd != -1 else own for own, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        order = {
            "words": list(args[1:]), "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env),
            "session": rest[20], "terminal": self._terminal,
        }  # fmt: skip
        self.pid = server().fork(order, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self.returncode = server().code(self.pid, 0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            self.returncode = server().code(self.pid, timeout)
            if self.returncode is None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def run(command: list[str], *, check: bool = False, capture_output: bool = False, timeout: float | None = None,
        **options: Any) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """Run a command to its end; see `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Server:
    """The process that forks, and the exit codes of its children as they arrive."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import warm; warm.serve({theirs.fileno()})"],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            env={**shim.preload(), "PYTHONHASHSEED": HASH_SEED, "PYTHONPATH": path},
        )  # fmt: skip
        theirs.close()
        self._socket, self._codes, self._arrived = ours, dict[int, int](), threading.Condition()
        self._forked: list[int] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        """The process id of a child that runs the command with these streams."""
        with self._arrived:
            socket.send_fds(self._socket, [json.dumps(order).encode()], streams)
            assert self._arrived.wait_for(lambda: self._forked, 300), "the server does not answer"
            return self._forked.pop()

    def code(self, pid: int, timeout: float | None) -> int | None:
        """The exit code of a child, as `Popen.returncode`; None if it still runs after `timeout` seconds."""
        with self._arrived:
            self._arrived.wait_for(lambda: pid in self._codes, timeout)
            return self._codes.get(pid)

    def _listen(self) -> None:
        while message := self._socket.recv(MESSAGE):
            kind, pid, code = json.loads(message)
            with self._arrived:
                if kind == "forked":
                    self._forked.append(pid)
                else:
                    self._codes[pid] = code
                self._arrived.notify_all()

    def close(self) -> None:
        """End the server; children that still run are left alone."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._socket.close()
        self._process.kill()  # it may still be importing
        self._process.wait()


@cache
def server() -> Server:
    """The server of this process."""
    return Server()


def close() -> None:
    """End the server, if one was started."""
    if server.cache_info().currsize:
        server().close()
        server.cache_clear()


def serve(fd: int) -> None:
    """Fork a child for each order, and report its exit code."""
    import numba  # noqa: F401
    import torch
    import typer.main

    import townlet.cli.app
    import townlet.decide.app
    import townlet.live.app
    import townlet.train.session

    torch.set_num_threads(1)
    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(townlet.cli.app.app)
    gc.freeze()  # garbage collections in children would otherwise copy every page of this process
    orders, (wake, woken) = socket.socket(fileno=fd), os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children would inherit that `nohup` ignores it
    watched: list[Any] = [orders, wake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            os.read(wake, 1 << 16)
            report_exits(orders)
        if orders in ready:
            message, streams, _, _ = socket.recv_fds(orders, MESSAGE, 3)
            if not message:
                return
            if not (pid := os.fork()):
                orders.close()
                os._exit(child(json.loads(message), streams))
            for stream in streams:
                os.close(stream)
            orders.send(json.dumps(["forked", pid, 0]).encode())


def report_exits(orders: socket.socket) -> None:
    """Send the exit codes of all children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        orders.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def child(order: dict[str, Any], streams: list[int]) -> int:
    """Run a command as the interpreter would; the exit code."""
    if sys.platform == "linux":  # no child outlives a server whose tests were killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["terminal"]:
        os.login_tty(streams[0])
    else:
        if order["session"]:
            os.setsid()
        for stream, number in zip(streams, (0, 1, 2), strict=True):
            os.dup2(stream, number)
    os.closerange(3, 256)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    shim.attach()
    code = 1
    try:
        execute(order["words"])
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    flushed = flush()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code if flushed and flush() else code or 120  # as the interpreter does


def flush() -> bool:
    """Write what is buffered; whether that was possible."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return False
    return True


def execute(words: list[str]) -> None:
    """Run `-m module`, `-c code` or a script with its arguments as `__main__`."""
    if words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        words = words[2:]
    path = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if words[:2] == ["-m", "townlet"]:
        from townlet.cli.app import main

        sys.argv = ["townlet", *words[2:]]
        main(words[2:])
    elif words[0] == "-m":
        sys.argv, sys.path[:0] = words[1:], [os.getcwd(), *path]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[:0] = ["-c", *words[2:]], ["", *path]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv, sys.path[:0] = words, [str(Path(words[0]).resolve().parent), *path]
        runpy.run_path(words[0], run_name="__main__")

"""The guard of the unit tests fails what starts a process or opens a connection."""

import os
import socket
import subprocess
import sys

import pytest


def connect():
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "function",
    [lambda: subprocess.run([sys.executable, "-V"]), lambda: os.system("true"), os.fork, connect],
)
def test_guard_refuses_processes_and_connections(function):
    with pytest.raises(pytest.fail.Exception, match="move it to tests/integration"):
        try:
            function()
        except Exception as error:  # as a library with a fallback would
            raise AssertionError("The guard was hidden.") from error

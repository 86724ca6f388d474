"""Run a service on a thread, with its real server and a port of this machine."""

import threading
import time
from contextlib import contextmanager

from vanilla_transformer.extensions.serving import server


@contextmanager
def running_service(service, limits):
    """Yield the server, with its `thread` and its `address`."""
    listener = server.bind("127.0.0.1", 0)
    address = listener.getsockname()
    running = server.Server(service, limits)
    running.address, running.thread = (
        address,
        threading.Thread(target=running.run, kwargs={"sockets": [listener]}),
    )
    running.thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        yield running
    finally:
        running.stop()
        running.thread.join()

"""Thousands of connections that do nothing, held open by this process."""

import select
import socket
import time

from .check import Wrong

BATCH = 200  # connects under way at once: below every server's listen queue


class IdleConnections:
    """Each made one request, got its whole answer and is kept alive: idle, not new."""

    def __init__(self, server, count):
        self.sockets = []
        request = f"GET {server.index} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        try:
            while len(self.sockets) < count:
                self.open_batch(server.port, min(BATCH, count - len(self.sockets)), request)
        except OSError as error:
            self.close()
            raise Wrong(f"after {len(self.sockets)} idle connections: {error}") from error

    def open_batch(self, port, count, request):
        waiting = {}
        poll = select.epoll()
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port), timeout=10)
            self.sockets.append(one)
            one.sendall(request)
            one.setblocking(False)
            waiting[one.fileno()] = [one, b""]
            poll.register(one, select.EPOLLIN)
        deadline = time.monotonic() + 10
        while waiting:
            if time.monotonic() > deadline:
                raise OSError(f"{len(waiting)} got no answer within 10 s")
            for number, _ in poll.poll(1):
                if number in waiting and self.answered(waiting[number]):
                    poll.unregister(number)
                    del waiting[number]
        poll.close()

    @staticmethod
    def answered(state):
        one, seen = state
        data = one.recv(65536)
        if not data:
            raise OSError("closed by the server")
        state[1] = seen + data
        return b"An index page" in state[1]

    def alive(self):
        """How many the server has not closed."""
        return sum(not self.closed(one) for one in self.sockets)

    @staticmethod
    def closed(one):
        try:
            while one.recv(65536):  # the end of its first answer may still have been on its way
                pass
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self):
        for one in self.sockets:
            one.close()
        self.sockets = []

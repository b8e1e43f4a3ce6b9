"""An application that speaks SCGI on the Unix socket that its argument names, and prints what it is told."""

import socketserver
import sys

NAMES = (
    "REQUEST_METHOD QUERY_STRING PATH_INFO SCRIPT_NAME REMOTE_ADDR HTTP_X_TEST HTTP_COOKIE"
)


class Request(socketserver.StreamRequestHandler):
    def handle(self):
        length = b""
        while (byte := self.rfile.read(1)) != b":":
            if not byte:
                return
            length += byte
        words = self.rfile.read(int(length)).decode("latin-1").split("\0")
        self.rfile.read(1)
        told = dict(zip(words[::2], words[1::2]))
        body = self.rfile.read(int(told["CONTENT_LENGTH"] or 0))
        lines = [f"{name}={told.get(name, '')}" for name in NAMES.split()]
        text = "\n".join(lines).encode("latin-1") + b"\n" + body
        head = b"Status: 200 OK\r\nContent-Type: text/plain\r\nX-Powered-By: SCGI\r\n\r\n"
        self.wfile.write(head + text)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


Server(sys.argv[1], Request).serve_forever()

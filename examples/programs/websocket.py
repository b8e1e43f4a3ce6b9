#!/usr/bin/env python3
"""Echoes the messages of a WebSocket (RFC 6455), on a route with `upgrade = true`.

After its 101 a program has the connection: what the client sends is standard input, what it prints goes to the client.
"""
import base64
import hashlib
import os
import sys

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
MOST = 1 << 20  # bytes of a message
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
read, write = sys.stdin.buffer, sys.stdout.buffer


def exactly(n):
    data = read.read(n)
    if len(data) < n:
        sys.exit()  # the client has left
    return data


def send(opcode, data):
    n = len(data)
    if n < 126:
        length = bytes([n])
    elif n < 1 << 16:
        length = b"\x7e" + n.to_bytes(2, "big")
    else:
        length = b"\x7f" + n.to_bytes(8, "big")
    write.write(bytes([0x80 | opcode]) + length + data)
    write.flush()


def fail(code):
    send(CLOSE, code.to_bytes(2, "big"))
    sys.exit()


def frame():
    """The next frame: whether it is the last of its message, its opcode and its data."""
    first, second = exactly(2)
    n = second & 0x7F
    if n == 126:
        n = int.from_bytes(exactly(2), "big")
    elif n == 127:
        n = int.from_bytes(exactly(8), "big")
    if first & 0x70 or not second & 0x80:
        fail(1002)  # a client masks what it sends, and has agreed upon no extension
    if n > MOST:
        fail(1009)
    mask = exactly(4)
    data = exactly(n)
    key = (mask * (n // 4 + 1))[:n]
    data = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(n, "big")
    return first & 0x80, first & 0x0F, data


key = os.environ.get("HTTP_SEC_WEBSOCKET_KEY")
if os.environ.get("HTTP_UPGRADE", "").lower() != "websocket" or not key:
    print("Status: 426 Upgrade Required\nContent-Type: text/plain\n\nThis is a WebSocket.")
    sys.exit()
accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
print(f"Status: 101 Switching Protocols\nUpgrade: websocket\nSec-WebSocket-Accept: {accept}\n", flush=True)

kind, message = TEXT, b""
while True:
    last, opcode, data = frame()
    if opcode == CLOSE:
        send(CLOSE, data)
        break
    if opcode == PING:
        send(PONG, data)
    elif opcode in (CONTINUATION, TEXT, BINARY):
        kind = opcode or kind
        message += data
        if len(message) > MOST:
            fail(1009)
        if last:
            send(kind, message)
            message = b""
    elif opcode != PONG:
        fail(1002)

#!/usr/bin/env python3
print("Content-Type: text/plain; charset=utf-8\n\nHello from Python.")

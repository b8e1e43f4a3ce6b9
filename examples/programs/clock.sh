#!/bin/sh
# Server-sent events: the time, once a second, until the client leaves.
printf 'Content-Type: text/event-stream\nCache-Control: no-store\n\n'
while date -u '+data: %H:%M:%S%n'; do
  sleep 1
done

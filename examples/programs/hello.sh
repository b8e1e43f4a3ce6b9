#!/bin/sh
printf 'Content-Type: text/plain; charset=utf-8\n\nHello from a shell script.\n'

#!/usr/bin/env perl
use v5.36;
print "Content-Type: text/plain; charset=utf-8\n\nHello from Perl.\n";

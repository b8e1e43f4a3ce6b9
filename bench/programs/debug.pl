#!/usr/bin/perl
# Prints all that a program is given: environment, arguments, input.
use strict;
use warnings;

print "Content-Type: text/plain\r\n\r\n";
print "Environment:\n";
print "  $_=$ENV{$_}\n" for sort keys %ENV;
print "Arguments:\n";
print "  $_\n" for @ARGV;
print "Input:\n";
# Only what CONTENT_LENGTH promises: RFC 3875, 4.2, promises no end-of-file.
if (my $length = $ENV{CONTENT_LENGTH}) {
    read STDIN, my $body, $length;
    print "  $body\n";
}

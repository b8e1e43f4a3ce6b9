#!/usr/bin/perl
# The smallest server for the pixel in Perl: a process a core, each accepts from the same
# socket, reads one request, answers and closes. No keep-alive, no parsing.
#
#   pixel.pl PORT GIF PROCESSES
use strict;
use warnings;
use Socket;

my ($port, $file, $processes) = @ARGV;
open my $gif, '<:raw', $file or die "$file: $!\n";
my $body = do { local $/; <$gif> };
my $reply = "HTTP/1.0 200 OK\r\nContent-Type: image/gif\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n" . $body;

socket my $server, PF_INET, SOCK_STREAM, 0 or die "socket: $!\n";
setsockopt $server, SOL_SOCKET, SO_REUSEADDR, 1;
bind $server, sockaddr_in($port, INADDR_LOOPBACK) or die "bind: $!\n";
listen $server, 4096 or die "listen: $!\n";

for (2 .. $processes) {
    last if !fork;
}
$SIG{PIPE} = 'IGNORE';
while (1) {
    accept my $client, $server or next;
    my $request = '';
    while ($request !~ /\r\n\r\n/ and sysread $client, $request, 4096, length $request) { }
    syswrite $client, $reply;
    close $client;
}

#!/usr/bin/perl
use strict;
use warnings;
use CGI;
use Digest::SHA qw(sha256_hex);

my $q = CGI->new;
my $path = $q->path_info;

sub plain { print $q->header(-type => 'text/plain', -charset => 'utf-8'), @_ }

if ($path eq '/upload') {
    my $file = $q->upload('file');
    my $info = $q->uploadInfo($file);
    my $data = do { local $/; my $io = $file->handle; binmode $io; <$io> };
    plain(join(' ', $q->param('file'), $info->{'Content-Type'}, length $data, sha256_hex($data),
        scalar $q->param('title'), join(',', $q->multi_param('tag'))), "\n");
} elsif ($path eq '/cookies') {
    my @cookies = (
        $q->cookie(-name => 'seen', -value => 1 + ($q->cookie('seen') // 0)),
        $q->cookie(-name => 'name', -value => 'two words'),
    );
    print $q->header(-type => 'text/plain', -cookie => \@cookies);
    printf "seen %s, other %s\n", scalar $q->cookie('seen'), scalar $q->cookie('other');
} elsif ($path eq '/away') {
    print $q->redirect('https://example.org/');
} elsif ($path eq '/see-other') {
    print $q->redirect(-uri => $q->url . '/self', -status => '303 See Other');
} elsif ($path eq '/self') {
    plain(join(' ', $q->url(-path_info => 1), $q->script_name, $q->path_info, $q->request_method), "\n");
} elsif ($path eq '/params') {
    plain(join(' ', map { "$_=" . join(',', $q->multi_param($_)) } $q->multi_param), "\n");
} else {
    print $q->header(-status => '404 Not Found', -type => 'text/plain'), "no such page\n";
}

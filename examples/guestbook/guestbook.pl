#!/usr/bin/env perl
# A guestbook: GET lists the newest 100 entries, POST signs.
use v5.36;
use utf8;
use DBI;
use Encode ();

use constant BODY_LIMIT => 16 * 1024;    # bytes

my $PAGE = <<'HTML';
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>
HTML

my $FORM = <<'HTML';
<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>
HTML

binmode STDIN;
binmode STDOUT, ':encoding(UTF-8)';

my $method = $ENV{REQUEST_METHOD} // '';
if    ($method eq 'GET' || $method eq 'HEAD') { listing() }
elsif ($method eq 'POST')                     { sign() }
else { refuse("405 Method Not Allowed\nAllow: GET, HEAD, POST", 'Only GET, HEAD and POST work here.') }

sub listing {
    my $rows = database()->selectall_arrayref(
        'SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100');
    print "Content-Type: text/html; charset=utf-8\n\n", $PAGE, $FORM;
    for my $row (@$rows) {
        my ($name, $signed_at, $message) = map { escape($_) } @$row;
        print <<~HTML;
            <article>
            <h2>$name <time>$signed_at</time></h2>
            <p>$message</p>
            </article>
            HTML
    }
}

sub sign {
    my %form = form();
    my $name    = field('name',    $form{name},    64,   qr/\p{Cc}/);
    my $message = field('message', $form{message}, 1000, qr/[^\P{Cc}\n]/);
    database()->do('INSERT INTO entry (name, message) VALUES (?, ?)', undef, $name, $message);
    print "Status: 303 See Other\nLocation: $ENV{SCRIPT_NAME}\n\n";
}

sub database {
    my $path = $ENV{GUESTBOOK_DB} || '../data/guestbook.db';
    my $db = DBI->connect("dbi:SQLite:dbname=$path", '', '',
        { RaiseError => 1, PrintError => 0, sqlite_unicode => 1 });
    $db->sqlite_busy_timeout(5000);
    $db->do(<<~'SQL');
        CREATE TABLE IF NOT EXISTS entry (
            id INTEGER PRIMARY KEY,
            signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
            name TEXT NOT NULL,
            message TEXT NOT NULL)
        SQL
    return $db;
}

# The fields of the form, as characters. Of a repeated field the first counts.
sub form {
    my ($type) = split /\s*;/, $ENV{CONTENT_TYPE} // '';
    refuse('415 Unsupported Media Type', 'This is not the form of this page.')
        if lc($type // '') ne 'application/x-www-form-urlencoded';
    my $body = body();
    refuse('400 Bad Request', 'The form is not percent-encoded UTF-8.')
        if $body =~ /%(?![0-9A-Fa-f]{2})/;
    my %form;
    for my $pair (split /&/, $body) {
        my ($key, $value) = map { decode($_) } split /=/, $pair, 2;
        $form{ $key // '' } //= $value // '';
    }
    return %form;
}

# The request body. Without CONTENT_LENGTH it lasts until the end of the input.
sub body {
    my $length = $ENV{CONTENT_LENGTH} // '';
    my $wanted = $length eq '' || $length > BODY_LIMIT ? BODY_LIMIT + 1 : $length;
    read STDIN, my ($body), $wanted;
    refuse('413 Content Too Large', 'The form is larger than 16 KiB.')
        if length $body > BODY_LIMIT;
    refuse('400 Bad Request', 'The form arrived incomplete.')
        if $length ne '' && length $body < $length;
    return $body;
}

sub decode ($text) {
    $text =~ tr/+/ /;
    $text =~ s/%(..)/chr hex $1/ge;
    return eval { Encode::decode('UTF-8', $text, Encode::FB_CROAK) }
        // refuse('400 Bad Request', 'The form is not percent-encoded UTF-8.');
}

# A field without the blanks around it, its line ends as LF.
sub field ($name, $text, $limit, $unwanted) {
    $text //= '';
    $text =~ s/\r\n?/\n/g;
    $text =~ s/^[ \n]+//;
    $text =~ s/[ \n]+\z//;
    refuse('400 Bad Request', "The $name is empty.") if $text eq '';
    refuse('400 Bad Request', "The $name is longer than $limit characters.")
        if length $text > $limit;
    refuse('400 Bad Request', "The $name contains control characters.") if $text =~ $unwanted;
    return $text;
}

sub escape ($text) {
    state $entity = { '&' => '&amp;', '<' => '&lt;', '>' => '&gt;', '"' => '&quot;', "'" => '&#x27;' };
    return $text =~ s/([&<>"'])/$entity->{$1}/gr;
}

sub refuse ($status, $sentence) {
    print "Status: $status\nContent-Type: text/html; charset=utf-8\n\n", $PAGE, <<~HTML;
        <p role="alert">$sentence</p>
        <p><a href="">Back to the guestbook</a></p>
        HTML
    exit;
}

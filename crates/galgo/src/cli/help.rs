//! Help texts besides the list of options, at most 80 columns wide.

pub(super) const GALGO: &str = "\
Examples:
  galgo serve                     this folder: its cgi-bin/ and public/
  galgo serve site -l [::]:8080   another folder, for everybody
  galgo run cgi-bin/hello         run hello without a server
  galgo check                     what would fail here, and how to fix it
  galgo help serve                more about one command

A new site:
  mkdir -p site/cgi-bin && cd site
  printf '#!/bin/sh\\necho Content-Type: text/plain\\necho\\necho hello\\n' \\
    >cgi-bin/hello
  chmod +x cgi-bin/hello && galgo serve

Exit codes: 0 done, 1 something is wrong, 2 the command line is wrong";

pub(super) const SERVE_PAGE: &str = "\
Serve a folder of programs and files

DIR/cgi-bin/ answers at /cgi-bin/, a process for each request, and DIR/public/
answers at /. A program that is copied in is served with the next request, and
nothing is restarted. If DIR/galgo.toml exists, it sets the routes instead.
SIGTERM and Ctrl-C let running requests finish; a second one ends at once.
SIGHUP reads the configuration again, and no request is lost. If it has errors,
galgo keeps the previous one. SIGUSR1 opens the log files again.
SIGUSR2 switches to the newly installed binary, and no request is lost.

{usage-heading} {usage}

{all-args}{after-help}";

pub(super) const SERVE: &str = "\
Addresses:
  127.0.0.1:8080       this machine only
  [::]:8080            everybody, by IPv6;  0.0.0.0:8080  by IPv4
  127.0.0.1:0          any free port; the first line printed names it
  unix:/run/galgo.sock a Unix socket
  h2c+127.0.0.1:8080   HTTP/2 without TLS
  proxy+127.0.0.1:8080 behind a proxy that speaks the PROXY protocol, version 2
  fastcgi+unix:/run/galgo.sock
                       behind a server that speaks FastCGI; scgi+... likewise
  fd:NAME              the sockets of that name that systemd passes

Examples:
  galgo serve
  galgo serve site --listen 127.0.0.1:9000
  sudo galgo serve site --listen https://example.org --user www-data
  galgo serve --config /etc/galgo.toml
  sudo galgo serve site -l 0.0.0.0:80 -l [::]:80 --user www-data";

pub(super) const RUN_PAGE: &str = "\
Run one program as the server would, without a server

The program gets the variables, limits and clocks of the route that it belongs
to: of --config FILE, else of the galgo.toml or the cgi-bin/ that it lies in.
Its response is judged as the server judges it, and printed as it comes. What
it writes to standard error goes to standard error.

{usage-heading} {usage}

{all-args}{after-help}";

pub(super) const RUN: &str = "\
Examples:
  galgo run cgi-bin/hello
  galgo run cgi-bin/search -q 'term=galgo&page=2'
  galgo run cgi-bin/guestbook.py -d 'name=Ada&text=Hello'
  galgo run cgi-bin/upload -d @photo.jpg -H 'Content-Type: image/jpeg'
  galgo run cgi-bin/wiki --path-info /Home -X HEAD --time
  galgo run cgi-bin/image -o body >image.png

Exit codes: 0 the response is valid, 1 it is not, 2 the command line is wrong";

pub(super) const CHECK_PAGE: &str = "\
Say what is wrong with a configuration and its programs

Looks at every program of every route: whether it is executable, its
interpreter and shared libraries are there, its #! line is whole, and nobody
else may replace it. Nothing is run. Each line is ok, warn, FAIL or note (what
lies in a program folder and is no program), with a fix if there is one.

With --warm the programs are run, several times, by GET and by POST with a form
that holds galgo=check: cold, and forked from a template (start = \"warm\"). What
differs or fails is named, and both times are printed. Try it on a copy of a
site whose programs store what they are sent.

{usage-heading} {usage}

{all-args}{after-help}";

pub(super) const CHECK: &str = "\
Examples:
  galgo check
  galgo check site
  galgo check --config /etc/galgo.toml
  galgo check --warm cgi-bin/guestbook.py
  galgo check --url https://example.org/x        which steps answer it
  sudo galgo check --config /etc/galgo.toml      as the user it names

Exit codes: 0 nothing would fail, 1 something would, or differs,
            2 the command line is wrong";

pub(super) const PASSWD_PAGE: &str = "\
Set the password of a user in an htpasswd file

FILE is the file that `passwords` names in galgo.toml. galgo creates it if it
does not exist. galgo asks for the password, or reads the first line of standard
input if that is not a terminal. A running server uses the new password from the
next request on.

{usage-heading} {usage}

{all-args}{after-help}";

pub(super) const PASSWD: &str = "\
Examples:
  galgo passwd site.htpasswd alice
  galgo passwd site.htpasswd alice --delete
  pwgen -s 20 1 | tee /dev/tty | galgo passwd site.htpasswd alice";

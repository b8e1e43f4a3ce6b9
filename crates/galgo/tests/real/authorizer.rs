//! Authorizers written with the usual libraries.

use std::{path::Path, process::Command};

use galgo_testkit::{Beside, Server, Site, file::compile};

use crate::{
    curl::curl,
    site::{needed, new_site},
};

const C: &str = r#"
#include <fcgi_stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  while (FCGI_Accept() >= 0) {
    const char *role = getenv("FCGI_ROLE"), *key = getenv("HTTP_AUTHORIZATION");
    if (strcmp(role, "AUTHORIZER") || getenv("SCRIPT_NAME") || getenv("CONTENT_LENGTH") || getchar() != EOF)
      printf("Status: 500 %s\r\nContent-Type: text/plain\r\n\r\n", role);
    else if (key && !strcmp(key, "Basic YWRhOng="))
      printf("Status: 200 OK\r\nVariable-REMOTE_USER: ada\r\nVariable-AUTH_TYPE: Basic\r\n\r\n");
    else
      printf("Status: 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"C\"\r\nContent-Type: text/plain\r\n\r\nwho?\n");
  }
}
"#;

const PERL: &str = r#"
use FCGI;
my $socket = FCGI::OpenSocket($ARGV[0], 5);
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%ENV, $socket);
while ($request->Accept() >= 0) {
  if ($ENV{FCGI_ROLE} ne 'AUTHORIZER' || exists $ENV{SCRIPT_NAME}) {
    print "Status: 500\r\nContent-Type: text/plain\r\n\r\n$ENV{FCGI_ROLE}";
  } elsif (($ENV{HTTP_AUTHORIZATION} // '') eq 'Basic YWRhOng=') {
    print "Status: 200\r\nVariable-REMOTE_USER: ada\r\nVariable-AUTH_TYPE: Basic\r\n\r\n";
  } else {
    print "Status: 401\r\nWWW-Authenticate: Basic realm=\"C\"\r\nContent-Type: text/plain\r\n\r\nwho?\n";
  }
}
"#;

const PROGRAM: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
                       echo \"$REMOTE_USER $AUTH_TYPE ${HTTP_AUTHORIZATION-none}\"; wc -c\n";

/// Checks that no client gets in without the password. With the password, the program knows the user and
/// gets the body.
fn guards(site: Site, authorizer: &str) {
    site.program("who", PROGRAM);
    site.write("kept/a.txt", "kept");
    let server: Server = site
        .config(&format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nauthorizer = {authorizer}\n\
         [[route]]\npath = \"/kept/\"\nfiles = \"kept\"\nauthorizer = {authorizer}\n"
        ))
        .start();
    for path in ["/cgi-bin/who", "/cgi-bin/none", "/kept/a.txt"] {
        let reply = curl(&["-d", "body", &server.url(path)]).is(401);
        assert_eq!(reply.text(), "who?\n");
        assert_eq!(reply.field("WWW-Authenticate"), "Basic realm=\"C\"");
        curl(&["-u", "eve:x", &server.url(path)]).is(401);
    }
    for _ in 0..3 {
        let ada = ["-u", "ada:x"];
        let program = server.url("/cgi-bin/who");
        let reply = curl(&[&ada[..], &["-d", "body", &program]].concat()).ok();
        assert_eq!(reply.text(), "ada Basic none\n4\n");
        let reply = curl(&[&ada[..], &[&server.url("/kept/a.txt")]].concat()).ok();
        assert_eq!(reply.text(), "kept");
        curl(&[&ada[..], &[&server.url("/cgi-bin/none")]].concat()).is(404);
    }
}

#[test]
fn c_with_libfcgi_as_workers() {
    let site = new_site();
    needed("/usr/include/fcgi_stdio.h");
    let app = compile(site.folder(), "app", C, &["-lfcgi"]);
    guards(
        site,
        &format!("{{ run = [\"{}\"], workers = 2 }}", app.display()),
    );
}

#[test]
fn perl_with_fcgi_pm() {
    let site = new_site();
    let (source, socket) = (site.write("app.pl", PERL), site.path("app.sock"));
    let mut command = Command::new("perl");
    let _application = Beside::at(command.arg(source).arg(&socket), &socket);
    guards(site, &address(&socket));
}

fn address(socket: &Path) -> String {
    format!("\"unix:{}\"", socket.display())
}

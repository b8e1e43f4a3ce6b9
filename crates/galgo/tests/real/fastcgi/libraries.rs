//! Applications in C, Perl and Python, written with the usual libraries.

use super::*;
use galgo_testkit::file::compile;

const C: &str = r#"
#include <fcgi_stdio.h>
#include <stdlib.h>
int main(void) {
  while (FCGI_Accept() >= 0) {
    const char *length = getenv("CONTENT_LENGTH");
    long n = length ? atol(length) : 0, sum = 0;
    for (long i = 0; i < n; i++) sum += getchar();
    fprintf(stderr, "a note from C\n");
    printf("Content-Type: text/plain\r\n\r\n%s %s %ld\n", getenv("REQUEST_METHOD"), getenv("PATH_INFO"), sum);
    long most = atol(getenv("QUERY_STRING"));
    for (long i = 0; i < most; i++) putchar('a' + i % 26);
  }
}
"#;

/// Workers with libfcgi answer right at every length, in both directions.
#[test]
fn c_with_libfcgi() {
    let site = new_site();
    needed("/usr/include/fcgi_stdio.h");
    let app = compile(site.folder(), "app", C, &["-lfcgi"]);
    let config = format!(
        "[[route]]\npath = \"/app\"\nfastcgi = {{ run = [\"{}\"], workers = 2 }}\n",
        app.display()
    );
    let server = site.config(&config).start();
    for n in [
        0, 1, 7, 8, 8183, 8184, 8185, 65_527, 65_535, 65_536, 65_537, 5_000_000,
    ] {
        let reply = curl(&[&server.url(&format!("/app/x?{n}"))]).ok();
        let body = "abcdefghijklmnopqrstuvwxyz".bytes().cycle().take(n);
        let expected: Vec<_> = b"GET /x 0\n".iter().copied().chain(body).collect();
        assert!(reply.body == expected, "{n}: {} bytes", reply.body.len());
    }
    for n in [1, 8, 65_527, 65_528, 65_529, 65_536, 3_000_000] {
        let reply = curl_with(
            &["--data-binary", "@-", &server.url("/app/y?0")],
            &vec![1; n],
        )
        .ok();
        assert_eq!(reply.text(), format!("POST /y {n}\n"));
    }
    server.says("a note from C");
}

/// A program like the example `threaded.c` of libfcgi: threads take turns to accept.
const THREADED: &str = r#"
#include <fcgiapp.h>
#include <pthread.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *serve(void *number) {
  FCGX_Request request;
  FCGX_InitRequest(&request, 0, 0);
  for (;;) {
    pthread_mutex_lock(&turn);
    int accepted = FCGX_Accept_r(&request);
    pthread_mutex_unlock(&turn);
    if (accepted < 0) return 0;
    FCGX_FPrintF(request.out, "Content-Type: text/plain\r\n\r\nanswered\n");
    FCGX_Finish_r(&request);
  }
}

int main(void) {
  FCGX_Init();
  for (long n = 1; n < 4; n++) {
    pthread_t thread;
    pthread_create(&thread, 0, serve, (void *)n);
  }
  serve(0);
}
"#;

/// A thread waits for a connection, and no other thread looks at a connection that was kept.
#[test]
fn c_with_libfcgi_and_threads() {
    let site = new_site();
    needed("/usr/include/fcgiapp.h");
    let app = compile(site.folder(), "app", THREADED, &["-lfcgi", "-lpthread"]);
    let config = format!(
        "[[route]]\npath = \"/app\"\nfastcgi = {{ run = [\"{}\"], workers = 1 }}\n\
         first_byte_timeout = \"20s\"\n",
        app.display()
    );
    let server = site.config(&config).start();
    for _ in 0..50 {
        assert_eq!(curl(&[&server.url("/app")]).ok().text(), "answered\n");
    }
}

const PERL: &str = r#"
use FCGI;
my $socket = FCGI::OpenSocket($ARGV[0], 5);
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%ENV, $socket);
while ($request->Accept() >= 0) {
  my $body = do { local $/; <STDIN> } // '';
  print "Content-Type: text/plain\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n",
    "$ENV{REQUEST_METHOD} $ENV{SCRIPT_NAME} $ENV{PATH_INFO} ", length $body, "\n";
}
"#;

#[test]
fn perl_with_fcgi_pm() {
    let site = new_site();
    let (source, socket) = (site.write("app.pl", PERL), site.path("app.sock"));
    let mut command = Command::new("perl");
    let _application = Beside::at(command.arg(source).arg(&socket), &socket);
    let config = "[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nkeep_connections = 1\n";
    let server = site.config(config).start();
    for n in [0, 5, 70_000, 2_000_000] {
        let args = ["--data-binary", "@-", &server.url("/app/a%20b")];
        let reply = curl_with(&args, &vec![b'x'; n]).ok();
        assert_eq!(reply.text(), format!("POST /app /a b {n}\n"));
        assert_eq!(reply.fields("Set-Cookie"), ["a=1", "b=2"]);
        // This request may be repeated. It uses the connection that was kept.
        let reply = curl(&[&server.url("/app/c")]).ok();
        assert_eq!(reply.text(), "GET /app /c 0\n");
    }
}

const PYTHON: &str = r#"
import importlib, sys
def app(environ, start_response):
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    start_response('201 Made', [('Content-Type', 'text/plain')])
    names = 'REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING'
    yield ' '.join(environ[n] for n in names).encode() + b' %d\n' % len(body)
    for i in range(3):
        yield b'x' * 100000
server = importlib.import_module('flup.server.' + sys.argv[1]).WSGIServer
server(app, bindAddress=sys.argv[2]).run()
"#;

fn python(module: &str, key: &str) {
    let site = new_site();
    let (source, socket) = (site.write("app.py", PYTHON), site.path("app.sock"));
    let mut command = Command::new(needed(root().join(".build/venv/bin/python")));
    command.arg(source).arg(module).arg(&socket);
    let _application = Beside::at(&mut command, &socket);
    let config = format!("[[route]]\npath = \"/app\"\n{key} = \"unix:app.sock\"\n");
    let server = site.config(&config).start();
    let rest = "x".repeat(300_000);
    for n in [0, 5, 2_000_000] {
        let args = ["--data-binary", "@-", &server.url("/app/a%20b?c=d")];
        let body = vec![b'x'; n];
        let reply = curl_with(&args, &body).is(201);
        assert_eq!(reply.text(), format!("POST /app /a b c=d {n}\n{rest}"));
        let chunked = ["-H", "Transfer-Encoding: chunked"];
        let reply = curl_with(&[&chunked[..], &args].concat(), &body).is(201);
        assert_eq!(reply.text(), format!("POST /app /a b c=d {n}\n{rest}"));
    }
    let reply = curl(&[&server.url("/app?q")]).is(201);
    assert_eq!(reply.text(), format!("GET /app  q 0\n{rest}"));
}

#[test]
fn python_with_flup_over_fastcgi() {
    python("fcgi", "fastcgi");
}

#[test]
fn python_with_flup_over_scgi() {
    python("scgi", "scgi");
}

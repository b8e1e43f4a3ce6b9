//! Refused routes and rewrite rules.

pub(super) const ROUTES: &[super::Refused] = &[
    (
        "[[route]]\npath = \"/\"",
        "1:1: this route has no handler: add one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
    ),
    (
        "[[route]]\npath = \"/\"\nroot = \"public\"",
        "3:8: root: is the folder of an application's scripts, beside `fastcgi` or `scgi`: for files write files = \"public\"",
    ),
    (
        "# a\n[[route]]\npath = \"/\"\nfiles = \"public\"\ncgi = \"cgi-bin\"",
        "2:1: this route has more than one handler: keep one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
    ),
    (
        "[[route]]\nfiles = \"public\"",
        "1:1: this route has no `path`: add path = \"/…\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"pubic\"",
        "3:9: files: DIR/pubic does not exist: create it or correct the path",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"pixel.gif\"",
        "3:9: files: DIR/pixel.gif is not a folder: name one",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"\"",
        "3:9: files: is empty: write \".\" for the folder of this file",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nmax_body = 3",
        "4:12: max_body: is an option of `cgi` routes, and this is a `files` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nenv = { A = \"1\" }",
        "4:7: env: is an option of `cgi` routes, and this is a `files` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = \"localhost:9000\"",
        "3:11: fastcgi: \"localhost:9000\" is a name: write \"127.0.0.1:9000\" or \"[::1]:9000\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = \"/run/php.sock\"",
        "3:11: fastcgi: \"/run/php.sock\" is a path: write \"unix:/run/php.sock\" for a socket",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = \"fastcgi:127.0.0.1:9000\"",
        "3:11: fastcgi: \"fastcgi:127.0.0.1:9000\" is not an address: write IP and port (\"127.0.0.1:8080\", \"[::1]:8080\") or \"unix:/path\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = \"unix:a\"\nmemory = \"1G\"",
        "4:10: memory: applies only to processes that galgo starts, but this `fastcgi` route names an address: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nquery_args = true",
        "4:14: query_args: is an option of `cgi` routes, and this is a `scgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nstart = \"warm\"",
        "4:9: start: is an option of `cgi` routes, and this is a `scgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nscripts = [\".a\"]",
        "4:11: scripts: needs a folder of scripts: add `root`, or delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nroot = \"cgi-bin\"\nscripts = [\"php\"]",
        "5:12: scripts: \"php\" is not a file extension: write it as in \".php\", or \"*\" for any",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nroot = \"cgi-bin\"\nindex = [\"index.pl\"]",
        "5:10: index: \"index.pl\" is not a script: add its extension to `scripts`",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nscripts = [\".php\"]",
        "4:11: scripts: is an option of `fastcgi` routes, and this is a `cgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nindex = [\"a\"]",
        "4:9: index: needs a folder of scripts: add `root`, or delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nauthorizer = \"fastcgi+unix:a\"",
        "4:14: authorizer: names a protocol of listeners: write the address alone",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nauthorizer = { workers = 1 }",
        "4:14: authorizer: lacks `run`: name the program, as in run = [\"/usr/bin/php-cgi\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = { run = [\"/bin/true\"] }",
        "3:8: scgi: needs an address, because galgo starts only `fastcgi` programs",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = { workers = 2 }",
        "3:11: fastcgi: lacks `run`: name the program, as in run = [\"/usr/bin/php-cgi\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = { run = [\"/bin/true\"], workers = 0 }",
        "3:44: workers: 0 is out of range: 1 to 1000",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nroot = \"public\"",
        "4:8: root: is an option of `fastcgi` routes, and this is a `files` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\n[[route]]\npath = \"/programs/\"\nfastcgi = \"unix:a\"\nroot = \"cgi-bin\"",
        "1:1: files: DIR holds the programs of \"/programs/\", and anybody could read their sources at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or add to this route: cgi_names = [\"*.php\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\n[[route]]\npath = \"/programs/\"\nfastcgi = \"unix:a\"\nroot = \"cgi-bin\"\nscripts = [\"*\"]",
        "1:1: files: DIR holds the programs of \"/programs/\", and anybody could read their sources at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or list the extensions of scripts as `scripts` in that route and as `cgi_names` in this one",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\n[[route]]\npath = \"/app\"\nfastcgi = \"unix:a\"\nroot = \"pixel.gif\"",
        "1:1: files: DIR holds the programs of \"/app\", and anybody could read their sources at \"/pixel.gif\": move the programs out, add a `cgi` route with that path, or add to this route: cgi_names = [\"pixel.gif\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\ncgi_names = [\"*.php\"]\n[[route]]\npath = \"/*.php\"\nfastcgi = \"unix:a\"\nroot = \"cgi-bin\"\nscripts = [\".php\", \".bak\"]",
        "1:1: files: DIR holds the programs of \"/*.php\", and anybody could read their sources at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or add to this route: cgi_names = [\"*.php\", \"*.bak\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\ncgi_names = [\"*.pl\"]\n[[route]]\npath = \"/cgi-bin/*.cgi\"\ncgi = \"cgi-bin\"",
        "1:1: files: DIR holds the programs of \"/cgi-bin/*.cgi\", and anybody could read their sources at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or add to this route: cgi_names = [\"*.cgi\"]",
    ),
    (
        "[[route]]\npath = \"/\"\nredirect = \"https://www.example.org\"",
        "3:12: redirect: write it as in redirect = { to = \"/new{path}\", status = 308 }",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\naccess = [\"10.0.0.0/8\"]",
        "4:11: access: write it as in access = { allow = [\"10.0.0.0/8\"] }",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\naccess = { allow = \"10.0.0.0/8\" }",
        "4:20: allow: found string \"10.0.0.0/8\", expected a list: [ … ]",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nindex = []",
        "4:9: index: is an option of `files` routes, and this is a `cgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nenv = { PATH_INFO = \"1\" }",
        "4:9: env: PATH_INFO is computed for each request and cannot be set: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nload_env = { LANG = \"C\" }",
        "4:14: load_env: LANG is the same for all requests: set it in `env`",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nload_env = { GATEWAY_INTERFACE = \"\" }",
        "4:14: load_env: GATEWAY_INTERFACE is the same for all requests: set it in `env`",
    ),
    (
        "[[route]]\npath = \"/\"\nfastcgi = \"unix:a\"\nload_env = {}",
        "4:12: load_env: is an option of `cgi` routes, and this is a `fastcgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nenv = { \"A-B\" = \"1\" }",
        "4:9: env: \"A-B\" is not the name of a variable: letters, digits and \"_\"",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nenv = { A = \"\\u0000\" }",
        "4:13: A: holds a NUL character: remove it",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nenv = { A = 1 }",
        "4:13: A: found integer `1`, expected a string",
    ),
    (
        "[[route]]\npath = \"a\"\ncgi = \"cgi-bin\"",
        "2:8: path: \"a\" does not begin with \"/\"",
    ),
    (
        "[[route]]\npath = \"/a//b\"\ncgi = \"cgi-bin\"",
        "2:8: path: \"/a//b\" holds an empty segment: write one \"/\"",
    ),
    (
        "[[route]]\npath = \"/a/../b\"\ncgi = \"cgi-bin\"",
        "2:8: path: \"/a/../b\" holds a segment \".\" or \"..\", which matches no request: write the path without it",
    ),
    (
        "[[route]]\npath = \"/a%20b\"\ncgi = \"cgi-bin\"",
        "2:8: path: \"/a%20b\" holds \"?\", \"#\", \"%\" or a control character: write the decoded path",
    ),
    (
        "[[route]]\npath = \"/\"\nhost = \"a.b:80\"\ncgi = \"cgi-bin\"",
        "3:8: host: a host is written without a port: delete the port",
    ),
    (
        "[[route]]\npath = \"/\"\nhost = \"a*.b\"\ncgi = \"cgi-bin\"",
        "3:8: host: \"a*.b\" is not a host name: write it as in \"git.example.org\" or \"*.example.org\"",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\n[[route]]\npath = \"/\"\nfiles = \"public\"",
        "4:1: another route has the path \"/\" already: delete one",
    ),
    (
        "[[route]]\npath = \"/a\"\nhost = \"B.c\"\ncgi = \"cgi-bin\"\n[[route]]\npath = \"/a/\"\nhost = \"b.c\"\nfiles = \"public\"",
        "5:1: another route has the path \"/a/\" and the host \"b.c\" already: delete one",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \".\"\n[[route]]\npath = \"/programs/\"\ncgi = \"cgi-bin\"",
        "1:1: files: DIR holds the programs of \"/programs/\", and anybody could read their sources at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or replace that route with `cgi_names` in this one",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nindex = [\"a/b\"]",
        "4:10: index: \"a/b\" is not the name of a file: write it as in \"index.html\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\ntypes = { x = \"html\" }",
        "4:15: x: \"html\" is not a media type: write it as in \"text/html\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nheaders = { \"Content-Length\" = \"1\" }",
        "4:13: headers: Content-Length is computed for each response: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nheaders = { \"A B\" = \"1\" }",
        "4:13: headers: \"A B\" is not the name of a field",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nheaders = { A = \"1\\r\\nB: 2\" }",
        "4:17: A: a field value holds visible ASCII and single spaces around words only",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { status = 99 }",
        "3:22: status: is not a final status: 200 to 599",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { status = 204, body = \"x\" }",
        "3:11: a response with status 204 has no body: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { body = \"x\", file = \"pixel.gif\" }",
        "3:32: file: conflicts with `body`: keep one of them",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { file = \"nothing.gif\" }",
        "3:20: file: DIR/nothing.gif does not exist: create it or correct the path",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { bdy = \"x\" }",
        "3:13: unknown key \"bdy\"; did you mean \"body\"?",
    ),
    (
        "[[route]]\npath = \"/\"\nrespond = { body = \"x\" }\nlisting = true",
        "4:11: listing: is an option of `files` routes, and this is a `respond` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\ntls = 1",
        "3:1: unknown key \"tls\" here; it belongs at the top of the file",
    ),
    (
        "[[route]]\npath = \"/\"\ngzip = true",
        "3:1: unknown key \"gzip\": write compress = true in a [[route]]",
    ),
    (
        "[[route]]\npath = \"/\"\nfile = \"x\"",
        "3:1: unknown key \"file\"; did you mean \"files\"?",
    ),
    (
        "[[route]]\npath = \"/index.html\"\nfiles = \"public\"",
        "2:8: path: \"/index.html\" is a file, and `files` serves a folder: write \"/index.html*\" for that name in it, or \"/index.html/\" for another folder",
    ),
    (
        "[[rewrite]]\npattern = \"^index\"\nto = \"/y\"",
        "2:11: pattern: fits no path, because each begins with \"/\": write \"^/index\"",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ path = \"^c/\", set = { A = \"1\" } }]",
        "4:23: path: fits no path, because each begins with \"/\": write \"^/c/\"",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nlog_format = \"json\"",
        "4:14: log_format: needs an `access_log` beside it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\nenv_rules = [{ path = \"x\", set = { A = \"1\" } }]",
        "4:13: env_rules: is an option of `cgi` routes, and this is a `files` route: delete it",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ set = { A = \"1\" } }]",
        "4:14: env_rules: this rule has no condition: name one of `headers`, `path`, `query`, `methods`, `host`, `from`, or write the variables into `env`",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ path = \"x\" }]",
        "4:14: env_rules: this rule sets nothing: add set = { NAME = \"value\" }",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ path = \"(\", set = { A = \"1\" } }]",
        "4:23: path: is no pattern: unclosed group",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ path = \"x\", set = { HTTP_X = \"1\" } }]",
        "4:36: env_rules: HTTP_X is computed for each request and cannot be set: delete it",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ path = \"x\", set = { REMOTE_USER = \"1\" } }]",
        "4:36: env_rules: REMOTE_USER is computed for each request and cannot be set: delete it",
    ),
    (
        "[[route]]\npath = \"/c/\"\ncgi = \"cgi-bin\"\nenv_rules = [{ headers = { \"a b\" = \"x\" }, set = { A = \"1\" } }]",
        "4:28: env_rules: \"a b\" is not the name of a field",
    ),
    (
        "[[route]]\npath = \"/a\"\ncgi = \"cgi-bin\"\ncache = \"2h\"",
        "4:9: cache: 2h is out of range: 100ms to 1h",
    ),
    (
        "[[route]]\npath = \"/a\"\ncgi = \"cgi-bin\"\ncache = true",
        "4:9: cache: found boolean `true`, expected a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"",
    ),
    (
        "[[route]]\npath = \"/a\"\nscgi = \"unix:x\"\ncache = \"2s\"",
        "4:9: cache: is an option of `cgi` routes, and this is a `scgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/a\"\nfiles = \"public\"\nauthorizer = { cgi = \"nothing\" }",
        "4:22: cgi: DIR/nothing does not exist: create it or correct the path",
    ),
    (
        "[[route]]\npath = \"/a\"\nfiles = \"public\"\nauthorizer = { cgi = \"cgi-bin\" }",
        "4:22: cgi: is a folder: name the program in it",
    ),
    (
        "[[route]]\npath = \"/a\"\nfiles = \"public\"\nauthorizer = { cgi = \"cgi-bin/a.wasm\" }",
        "4:22: cgi: is a WebAssembly module, and an authorizer is a process: name another program",
    ),
    (
        "[[route]]\npath = \"/a\"\nfiles = \"public\"\nauthorizer = { cgi = \"run\", workers = 2 }",
        "4:39: workers: is for FastCGI applications and conflicts with `cgi`: keep one of them",
    ),
    (
        "[[route]]\npath = \"/a\"\nfastcgi = { cgi = \"run\" }",
        "3:19: cgi: works only in `authorizer`: here write `run` for a FastCGI program, or a `cgi` route for another program",
    ),
    (
        "[[route]]\npath = \"/a\"\nfastcgi = \"unix:x\"\nupgrade = true",
        "4:11: upgrade: is an option of `cgi` routes, and this is a `fastcgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/a\"\nscgi = \"unix:x\"\nupgrade = true",
        "4:11: upgrade: is an option of `cgi` routes, and this is a `scgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/a\"\nfiles = \"public\"\nupgrade = true",
        "4:11: upgrade: is an option of `cgi` routes, and this is a `files` route: delete it",
    ),
    (
        "[[route]]\npath = \"/a\"\ncgi = \"cgi-bin/a.wasm\"\nupgrade = true",
        "4:11: upgrade: gives a program its client's connection, which a WebAssembly module cannot have: delete it",
    ),
];

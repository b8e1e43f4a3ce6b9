//! What is refused, and in which words. `DIR` stands for the folder of the file.

use super::{parse, site};

/// (source, message); the message begins with line and column.
const BAD: &[(&str, &str)] = &[
    (
        "\n\nlisen = []",
        "3:1: unknown key \"lisen\"; did you mean \"listen\"?",
    ),
    (
        "idle_timeout = 3",
        "1:1: unknown key \"idle_timeout\" here; it belongs under [defaults] or in a [[route]]",
    ),
    (
        "[defaults]\nlisten = []",
        "2:1: unknown key \"listen\" here; it belongs at the top of the file",
    ),
    (
        "frobnicate = 1",
        "1:1: unknown key \"frobnicate\"; known here: listen, socket_mode, socket_group, trusted_proxies, forwarded, user, group, min_uid, min_gid, workers, umask, path, pid_file, access_log, log_format, error_log, cache, spool, spool_limit, spool_memory, dev_errors, shutdown_grace, head_timeout, keep_alive, min_rate, rate_grace, busy_rate, max_connections, max_connections_per_client, max_head, max_fields, max_target, encoded_slash, max_templates, templates_memory, template_idle, max_running, max_running_per_client, cpu_share, queue, queue_wait, defaults, route, rewrite, include, sites, errors, interpreters, userdir, tls",
    ),
    (
        "[[route]]\npath = \"/\"\nfile = \"x\"",
        "3:1: unknown key \"file\"; did you mean \"files\"?",
    ),
    (
        "listen = ",
        "1:10: string values must be quoted, expected literal string",
    ),
    (
        "[route]\npath = \"/\"",
        "1:1: route: found a table, expected a list: [ … ], or [[…]] in front of each table",
    ),
    (
        "umask = 022",
        "1:9: no number begins with 0: write it in quotes",
    ),
    (
        "listen = \"127.0.0.1:80\"",
        "1:10: listen: found string \"127.0.0.1:80\", expected a list: [ … ]",
    ),
    (
        "listen = [8080]",
        "1:11: listen: found integer `8080`, expected a string",
    ),
    (
        "listen = [\"127.0.0.1:80\", \":8080\"]",
        "1:27: listen: \":8080\" names no address: write \"127.0.0.1:8080\" for this machine only, or \"[::]:8080\" for every address",
    ),
    (
        "listen = []",
        "1:10: listen: names no address: add one, or delete the line",
    ),
    (
        "listen = [\"127.0.0.1:80\", \"127.0.0.1:80\"]",
        "1:27: listen: 127.0.0.1:80 is named twice: delete one",
    ),
    (
        "tls = true",
        "1:7: tls: found boolean `true`, expected a table: { … }",
    ),
    (
        "sites = \"nowhere\"",
        "1:9: sites: DIR/nowhere does not exist: create it or correct the path",
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
        "4:39: workers: is about a FastCGI application, and stands beside `cgi`: keep one of them",
    ),
    (
        "[[route]]\npath = \"/a\"\nfastcgi = { cgi = \"run\" }",
        "3:19: cgi: is for `authorizer`: name a FastCGI program by `run`, and others by a `cgi` route",
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
    ("listen = []\nlisten = []", "2:1: duplicate key"),
    (
        "head_timeout = \"10x\"",
        "1:16: head_timeout: \"10x\" is not a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"",
    ),
    (
        "head_timeout = -1",
        "1:16: head_timeout: -1 is not a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"",
    ),
    (
        "head_timeout = 0",
        "1:16: head_timeout: 0s is out of range: 1s to 1h",
    ),
    (
        "head_timeout = true",
        "1:16: head_timeout: found boolean `true`, expected a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"",
    ),
    (
        "max_head = \"1KB\"",
        "1:12: max_head: \"1KB\" is not a size: bytes (65536), or \"64K\", \"16M\", \"1G\" (powers of 1024); did you mean \"1K\"?",
    ),
    (
        "max_head = \"2M\"",
        "1:12: max_head: 2M is out of range: 1K to 1M",
    ),
    (
        "max_head = \"4K\"\nmax_target = \"8K\"",
        "2:14: max_target: is larger than `max_head`, which contains it",
    ),
    (
        "umask = 18",
        "1:9: umask: 18 is not a mask: three octal digits in quotes (\"022\")",
    ),
    (
        "umask = \"999\"",
        "1:9: umask: \"999\" is not a mask: three octal digits in quotes (\"022\")",
    ),
    (
        "path = \"/bin:.\"",
        "1:8: path: every folder begins with \"/\": \"/usr/local/bin:/usr/bin:/bin\"",
    ),
    (
        "workers = 2000",
        "1:11: workers: 2000 is out of range: 0 to 1024",
    ),
    (
        "workers = 1.5",
        "1:11: workers: found floating point `1.5`, expected a number from 0",
    ),
    (
        "dev_errors = \"maybe\"",
        "1:14: dev_errors: \"maybe\" is not true, false or \"auto\"",
    ),
    (
        "access_log = \"\"",
        "1:14: access_log: is empty: write \"-\", \"stderr\" or a file",
    ),
    (
        "error_log = \"off\"",
        "1:13: error_log: is never off: write \"stderr\", \"-\" (standard output) or a file",
    ),
    (
        "encoded_slash = \"allow\"",
        "1:17: encoded_slash: \"allow\" is neither \"refuse\" nor \"decode\"",
    ),
    (
        "log_format = \"xml\"",
        "1:14: log_format: \"xml\" is no format: choose \"combined\", \"host_combined\" or \"json\"",
    ),
    (
        "group = \"www-data\"",
        "1:9: group: needs a `user` beside it",
    ),
    (
        "user = \"no-such-user\"",
        "1:8: user: there is no user `no-such-user`: create it or correct the name",
    ),
    (
        "user = \"daemon\"\ngroup = \"no-such-group\"",
        "2:9: group: there is no group `no-such-group`: create it or correct the name",
    ),
    (
        "user = \"root\"",
        "1:8: user: galgo does not serve as root: name a user without privileges (www-data)",
    ),
    (
        "[defaults]\ncpu = \"1500ms\"",
        "2:7: cpu: is counted in whole seconds",
    ),
    (
        "[defaults]\ncpu = \"never\"",
        "2:7: cpu: \"never\" is not a duration: seconds (10), or \"10s\", \"2m\", \"1h\"; a part of a processor: \"50%\"; or \"none\"",
    ),
    (
        "[defaults]\ncpu = \"0%\"",
        "2:7: cpu: 0 is out of range: 1 to 100000",
    ),
    (
        "[defaults]\nstart = \"hot\"",
        "2:9: start: \"hot\" is no way to start a program: choose \"cold\" or \"warm\"",
    ),
    (
        "template_idle = \"10ms\"",
        "1:17: template_idle: 10ms is out of range: 1s to 720h",
    ),
    (
        "[defaults]\nbody = \"pipe\"",
        "2:8: body: \"pipe\" is no way to hand over a body: choose \"stream\" or \"file\"",
    ),
    (
        "[defaults]\nrate_limit = 10",
        "2:14: rate_limit: found integer `10`, expected a table, as in { requests = 10, per = \"1s\", burst = 20 }, or \"none\"",
    ),
    (
        "[defaults]\nrate_limit = \"off\"",
        "2:14: rate_limit: invalid value: string \"off\", expected a table, as in { requests = 10, per = \"1s\", burst = 20 }, or \"none\"",
    ),
    (
        "[defaults]\nrate_limit = { per = \"1s\" }",
        "2:14: rate_limit: lacks `requests`: write it as in { requests = 10, per = \"1s\", burst = 20 }",
    ),
    (
        "[defaults]\nrate_limit = { requests = 0 }",
        "2:27: requests: 0 is out of range: 1 to 1000000",
    ),
    (
        "[defaults]\nrate_limit = { requests = 1, per = \"0s\" }",
        "2:36: per: 0s is out of range: 1ms to 24h",
    ),
    (
        "[defaults]\nrate_limit = { requests = 1, burst = 1000000 }",
        "2:38: burst: 1000000 is out of range: 1 to 100000",
    ),
    (
        "[defaults]\nrate_limit = { request = 1 }",
        "2:16: unknown key \"request\"; did you mean \"requests\"?",
    ),
    (
        "cpu_share = 101",
        "1:13: cpu_share: 101 is out of range: 0 to 100",
    ),
    (
        "[defaults]\nmax_running = 0",
        "2:15: max_running: 0 is out of range: 1 to 100000",
    ),
    (
        " \n",
        "1:1: the file is empty. Where it is not just being written, remove it: cgi-bin/ and public/ are served without it",
    ),
    (
        "route = []",
        " there is no route: add a [[route]] with `path` and one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
    ),
    (
        "[[route]]\npath = \"/\"",
        "1:1: this route has no handler: give it one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
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
        "4:10: memory: is about processes that galgo starts, and this `fastcgi` route names an address: delete it",
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
        "4:11: scripts: is about a folder of scripts: name that by `root`, or delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nroot = \"cgi-bin\"\nscripts = [\"php\"]",
        "5:12: scripts: \"php\" is no ending: write it as in \".php\", or \"*\" for any",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nroot = \"cgi-bin\"\nindex = [\"index.pl\"]",
        "5:10: index: \"index.pl\" is no script: add its ending to `scripts`",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nscripts = [\".php\"]",
        "4:11: scripts: is an option of `fastcgi` routes, and this is a `cgi` route: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nscgi = \"unix:a\"\nindex = [\"a\"]",
        "4:9: index: is about a folder of scripts: name that by `root`, or delete it",
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
        "3:8: scgi: takes an address: only `fastcgi` programs are started by galgo",
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
        "1:1: files: DIR holds the programs of \"/programs/\", and their sources could be read at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or name the programs by `cgi_names`",
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
        "4:14: load_env: LANG is no variable of a request: what is the same for all of them belongs into `env`",
    ),
    (
        "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nload_env = { GATEWAY_INTERFACE = \"\" }",
        "4:14: load_env: GATEWAY_INTERFACE is no variable of a request: what is the same for all of them belongs into `env`",
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
        "2:8: path: \"/a/../b\" holds a dot segment, which no request is answered by: write the path without it",
    ),
    (
        "[[route]]\npath = \"/a%20b\"\ncgi = \"cgi-bin\"",
        "2:8: path: \"/a%20b\" holds \"?\", \"#\", \"%\" or a control character: write the decoded path",
    ),
    (
        "[[route]]\npath = \"/\"\nhost = \"a.b:80\"\ncgi = \"cgi-bin\"",
        "3:8: host: a host has no port here: delete it",
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
        "1:1: files: DIR holds the programs of \"/programs/\", and their sources could be read at \"/cgi-bin/\": move the programs out, add a `cgi` route with that path, or name the programs by `cgi_names`",
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
        "3:32: file: stands beside `body`: keep one of them",
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
        "[interpreters]\nphp = \"/usr/bin/php-cgi\"",
        "2:1: \"php\" is not an ending: write it as in \".php\"",
    ),
    (
        "[interpreters]\n\".php\" = \"php-cgi\"",
        "2:10: .php: php-cgi is not absolute: write the whole path, as /usr/bin/php-cgi",
    ),
    (
        "[interpreters]\n\".php\" = \"/no/such/php-cgi\"",
        "2:10: .php: /no/such/php-cgi is not a program here: install it or correct the path",
    ),
    (
        "[interpreters]\n\".php\" = \"/etc/passwd\"",
        "2:10: .php: /etc/passwd is not executable: chmod +x it or correct the path",
    ),
    (
        "[userdir]\nusers = [\"daemon\"]",
        "1:1: userdir: name at least one of `files` and `cgi`",
    ),
    (
        "[userdir]\nfiles = \"public_html\"",
        "1:1: userdir: name the users that have one: users = [\"alice\"]",
    ),
    (
        "[userdir]\nfiles = \"public_html\"\nusers = [\"*\"]",
        "3:10: users: every account would be published, those of the system too: name the users",
    ),
    (
        "[userdir]\nfiles = \"public_html\"\nusers = [\"root\"]",
        "3:10: users: the home of root is not published: delete it",
    ),
    (
        "[userdir]\nfiles = \"public_html\"\nusers = [\"no-such-user\"]",
        "3:10: users: there is no user `no-such-user`: delete it or correct the name",
    ),
    (
        "[userdir]\nfiles = \"../public_html\"\nusers = [\"daemon\"]",
        "2:9: files: is a folder below the home: write it as in \"public_html\"",
    ),
    (
        "[tls]",
        "1:1: tls: names no certificate: add `certificate` and `key`, or `automatic`, or delete the table",
    ),
    (
        "[tls]\ncertificate = \"a.pem\"",
        "2:15: certificate: needs a `key` beside it",
    ),
    (
        "[tls]\nkey = \"a.pem\"",
        "2:7: key: needs a `certificate` beside it",
    ),
    (
        "[tls]\ncertificates = [{ key = \"a\" }]",
        "2:25: key: needs a `certificate` beside it",
    ),
    (
        "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"",
        "2:15: certificate: DIR/a.pem does not exist: create it or correct the path",
    ),
    (
        "[tls]\ncertificate = \"pixel.gif\"\nkey = \"pixel.gif\"",
        "2:15: certificate: DIR/pixel.gif with DIR/pixel.gif: there is no certificate in it: it begins with -----BEGIN CERTIFICATE-----",
    ),
    (
        "[server]\nport = 80",
        "1:2: unknown key \"server\": the server's keys stand at the top of the file, in no table",
    ),
    (
        "error_pages = 1",
        "1:1: unknown key \"error_pages\": write errors = { 404 = \"/404.html\" }",
    ),
    (
        "redirect = 1",
        "1:1: unknown key \"redirect\" here; it belongs in a [[route]]",
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
        "[defaults]\nmax_body = \"256MB\"",
        "2:12: max_body: \"256MB\" is not a size: bytes (65536), or \"64K\", \"16M\", \"1G\" (powers of 1024); did you mean \"256M\"?",
    ),
    (
        "keep_alive = \"1 min\"",
        "1:14: keep_alive: \"1 min\" is not a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"; did you mean \"1m\"?",
    ),
];

#[test]
fn refused_with_place_and_mend() {
    let dir = site();
    let file = dir.path().join("galgo.toml").display().to_string();
    let mut wrong = String::new();
    for (source, want) in BAD {
        let got = parse(dir.path(), source).expect_err(source).to_string();
        let got = got.strip_prefix(&format!("{file}:")).unwrap_or(&got);
        let got = got.replace(&dir.path().display().to_string(), "DIR");
        if got != *want {
            wrong.push_str(&format!(
                "source: {source:?}\n  want: {want:?}\n   got: {got:?}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// All that is wrong is said, in the order of the file.
#[test]
fn several_at_once() {
    let dir = site();
    let source = "umask = \"022\"\nmax_fields = 1\nlog_format = \"xml\"\n[[route]]\npath = \"a\"\nfiles = \"public\"\n[[route]]\npath = \"/\"\nfiles = \"none\"\n[defaults]\nmax_stderr = \"2T\"";
    let said = parse(dir.path(), source).unwrap_err().to_string();
    let lines: Vec<_> = said.lines().collect();
    let starts = [":2:", ":3:", ":5:", ":9:", ":11:"];
    assert_eq!(lines.len(), starts.len(), "{said}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.contains(&format!("galgo.toml{start}")), "{said}");
    }
    let many = "[[route]]\npath = \"a\"\nfiles = \"public\"\n".repeat(30);
    let said = parse(dir.path(), &many).unwrap_err().to_string();
    assert_eq!(
        (said.lines().count(), said.lines().last()),
        (21, Some("and 10 more"))
    );
}

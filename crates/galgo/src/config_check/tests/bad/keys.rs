//! Refused keys outside of routes: keys of the server and of other tables.

pub(super) const KEYS: &[super::Refused] = &[
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
        "1:1: unknown key \"frobnicate\"; known here: listen, socket_mode, socket_group, trusted_proxies, forwarded, user, group, supplementary_groups, min_uid, min_gid, workers, umask, path, pid_file, access_log, log_format, error_log, cache, spool, spool_limit, spool_memory, dev_errors, shutdown_grace, head_timeout, keep_alive, min_rate, rate_grace, busy_rate, max_connections, max_connections_per_client, max_head, max_fields, max_target, encoded_slash, max_templates, templates_memory, template_idle, max_running, max_running_per_client, cpu_share, queue, queue_wait, defaults, route, rewrite, include, sites, errors, interpreters, userdir, tls",
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
        "DocumentRoot = \"/srv\"",
        "1:1: unknown key \"DocumentRoot\": write files = \"public\" in a [[route]]",
    ),
    (
        "[[route]]\nlocation = \"/\"",
        "2:1: unknown key \"location\": write path = \"/…\" in a [[route]]",
    ),
    (
        "[[rewrite]]\npattern = \"^/x\\.html$\"\nto = \"/y\"",
        "2:16: a backslash in double quotes begins an escape: write the text in single quotes",
    ),
    (
        "[[rewrite]]\npattern = '^/x/(.*)$'\nto = \"/y/$1\"",
        "3:6: to: \"/y/$1\" holds a $: write {path}, {query} or {host}; and name a group in the pattern, (?P<name>…), to write {name}",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\npasswords = { ada = \"secret\" }",
        "4:13: passwords: write it as in passwords = \"site.htpasswd\"",
    ),
    (
        "[[rewrite]]\npattern = \"^/\\user$\"\nto = \"/y\"",
        "2:16: a backslash in double quotes begins an escape: write the text in single quotes",
    ),
    (
        "[[rewrite]]\npattern = \"/x\\b\"\nto = \"/y\"",
        "2:11: pattern: holds a backspace (\"\\b\" in double quotes is one): write the pattern in single quotes",
    ),
    (
        "[[route]]\npath = \"/\"\nredirect = { to = \"https://$host/\" }",
        "3:19: to: \"https://$host/\" holds a $: write {path}, {query} or {host}; and name a group in the pattern, (?P<name>…), to write {name}",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\ntry = [\"$uri\"]",
        "4:8: try: \"$uri\" holds a $: write {path}, {query} or {host}; and name a group in the pattern, (?P<name>…), to write {name}",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\npasswords = \"p\"\nrequire = [\"valid-user\"]",
        "5:12: require: every user of the password file may enter without `require`: delete it",
    ),
    (
        "[[route]]\npath = \"/\"\nfiles = \"public\"\npasswords = \"p\"\nrequire = \"valid-user\"",
        "5:11: require: write it as in require = [\"alice\", \"@staff\"]",
    ),
    (
        "access_log = true",
        "1:14: access_log: write it as in access_log = \"access.log\"",
    ),
    (
        "ServerName = \"a\"",
        "1:1: unknown key \"ServerName\": write host = \"example.org\" in a [[route]]",
    ),
    (
        "[[route]]\nAdd-Header = \"a\"",
        "2:1: unknown key \"Add-Header\": write headers = { Name = \"value\" } in a [[route]]",
    ),
    (
        "[[route]]\nexec_cgi = true",
        "2:1: unknown key \"exec_cgi\": write cgi_names = [\"*.cgi\"] in a route of files",
    ),
    (
        "[[route]]\nwebsocket = true",
        "2:1: unknown key \"websocket\": write upgrade = true in a route of programs",
    ),
    (
        "[[route]]\nOrder = \"Deny,Allow\"",
        "2:1: unknown key \"Order\": write access = { allow = [\"10.0.0.0/8\"] } in a [[route]]",
    ),
    (
        "[[route]]\nenv_rules = [{ user_agent = \"a\" }]",
        "2:16: unknown key \"user_agent\": write headers = { User-Agent = \"…\" } in one of `env_rules`",
    ),
    (
        "listen = \"127.0.0.1:80\"",
        "1:10: listen: write it as in listen = [\"0.0.0.0:80\"]",
    ),
    (
        "listen = [8080]",
        "1:11: listen: write it as in listen = [\"0.0.0.0:80\"]",
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
        "1:7: tls: write it as in tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }",
    ),
    (
        "include = [\"sites/*.toml\"]",
        "1:11: include: write it as in include = \"sites/*.toml\"",
    ),
    (
        "umask = []",
        "1:9: umask: found a list, expected a mask: three octal digits in quotes (\"022\")",
    ),
    (
        "sites = \"nowhere\"",
        "1:9: sites: DIR/nowhere does not exist: create it or correct the path",
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
        "1:14: log_format: \"xml\" is not a log format: choose \"combined\", \"host_combined\" or \"json\"",
    ),
    (
        "group = \"www-data\"",
        "1:9: group: needs a `user` beside it",
    ),
    (
        "[defaults]\ngroup = \"www-data\"",
        "2:9: group: needs a `user` beside it",
    ),
    (
        "[defaults]\nuser = \"root\"",
        "2:8: user: programs of a route with `user` never run as root: name a user without privileges",
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
        "2:7: cpu: must be whole seconds",
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
        "1:1: the file is empty: add keys to it, or remove it to serve cgi-bin/ and public/",
    ),
    (
        "route = []",
        " there is no route: add a [[route]] with `path` and one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
    ),
    (
        "[interpreters]\n\".*\" = \"/bin/sh\"",
        "2:1: \".*\" is not a file extension: write it as in \".php\"",
    ),
    (
        "[interpreters]\nphp = \"/usr/bin/php-cgi\"",
        "2:1: \"php\" is not a file extension: write it as in \".php\"",
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
        "1:1: userdir: list the users to publish: users = [\"alice\"]",
    ),
    (
        "[userdir]\nfiles = \"public_html\"\nusers = [\"*\"]",
        "3:10: users: this would publish every account, system accounts too: list the users",
    ),
    (
        "[userdir]\nfiles = \"public_html\"\nusers = [\"root\"]",
        "3:10: users: the home of root is not published: delete it",
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
        "2:15: certificate: DIR/pixel.gif with DIR/pixel.gif: the file holds no certificate: a certificate begins with -----BEGIN CERTIFICATE-----",
    ),
    (
        "[server]\nport = 80",
        "1:2: unknown key \"server\": write the server's keys at the top of the file, outside of tables",
    ),
    (
        "server_user = \"galgo\"",
        "1:1: unknown key \"server_user\": for the user of the server write `user` at the top of the file; for the user of programs, `user` in a [[route]] or under [defaults]",
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
        "[defaults]\nmax_body = \"256MB\"",
        "2:12: max_body: \"256MB\" is not a size: bytes (65536), or \"64K\", \"16M\", \"1G\" (powers of 1024); did you mean \"256M\"?",
    ),
    (
        "keep_alive = \"1 min\"",
        "1:14: keep_alive: \"1 min\" is not a duration: seconds (10), or \"250ms\", \"10s\", \"2m\", \"1h\"; did you mean \"1m\"?",
    ),
];

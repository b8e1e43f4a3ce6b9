//! The programs and pages of the site.

/// Prints the variables of a program that do not depend on the server.
pub(super) const APP: &str = "#!/bin/sh\n\
printf 'Content-Type: text/plain\\nX-Powered-By: sh\\n\\n'\n\
for name in REQUEST_METHOD QUERY_STRING PATH_INFO SCRIPT_NAME REMOTE_ADDR SITE_NAME HTTP_X_TEST HTTP_COOKIE; do\n\
  eval \"printf '%s=%s\\n' $name \\\"\\$$name\\\"\"\n\
done\n\
case $REQUEST_METHOD in P*) echo $CONTENT_LENGTH; cat;; esac\n";

/// Answers with a status of its own.
pub(super) const STATUS: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 404 Not Found\\nContent-Type: text/plain\\nCache-Control: no-store\\n\\nmine\\n'\n";

/// Sends the client elsewhere.
pub(super) const MOVED: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 302 Found\\nLocation: http://elsewhere.example/x\\n\\n'\n";

/// Prints the variables that the configuration adds.
pub(super) const VARS: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\n\
echo \"$SITE_KEY,$SITE_NAME,$AUDIENCE,$WRITES,$TESTED,$IS_BOT\"\nulimit -St\nulimit -Sv\n";

/// Prints the facts that PHP knows about a request.
pub(super) const SCRIPT: &str = "<?php\nheader('Content-Type: text/plain');\n\
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'PATH_INFO', 'REMOTE_ADDR', 'HTTP_X_TEST', 'HTTP_COOKIE'] as $name)\n\
  echo $name, '=', $_SERVER[$name] ?? '', \"\\n\";\n\
echo $_GET['a'] ?? '', \",\", $_POST['a'] ?? '', file_get_contents('php://input');\n";

/// Prints the version of TLS that a program gets.
pub(super) const TLS: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\n\
echo \"$HTTPS $REQUEST_SCHEME $SSL_PROTOCOL\"\n";

/// Makes the server send a file.
pub(super) const SEND: &str = "#!/bin/sh\ncat >/dev/null\nsite=${SCRIPT_FILENAME%/cgi-bin/*}\n\
case $PATH_INFO in /outside) file=site.htpasswd;; *) file=vault$PATH_INFO;; esac\n\
printf 'X-Sendfile: %s\\nContent-Type: text/x-own\\n\\n' \"$site/$file\"\n";

/// Makes the server send a file that no client may ask for.
pub(super) const ACCEL: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/x-secret\\nX-Accel-Redirect: /protected/a.txt\\n\\n'\n";

/// Prints the variables about TLS.
pub(super) const SECURE: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\necho \"$HTTPS $REQUEST_SCHEME $SERVER_PROTOCOL\"\n";

/// Says whether it runs for the first time for this path, on this server.
pub(super) const FIRST: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\n\
mark=$(printf %s \"$SERVER_PORT $REQUEST_URI\" | cksum | tr ' ' -)\n\
mkdir \"../first-$mark\" 2>/dev/null && echo first || echo again\n";

/// Prints the user that asks.
pub(super) const MEMBER: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\necho \"$REMOTE_USER $AUTH_TYPE\"\n";

/// Prints the program's limits and time zone.
pub(super) const LIMITS: &str =
    "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n'\nulimit -v\necho \"$TZ\"\n";

/// Prints the variables of a script.
pub(super) const PHP: &str = "<?php header('Content-Type: text/plain'); setcookie('a', 'b');\n\
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'PATH_INFO', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PHP_SELF', 'REMOTE_ADDR', 'HTTP_X_TEST', 'HTTP_COOKIE'] as $name)\n\
  echo $name, '=', $_SERVER[$name] ?? '', \"\\n\";\n\
echo json_encode([$_GET, $_POST, $_COOKIE]), file_get_contents('php://input');\n";

/// A script that sends the client elsewhere.
pub(super) const PHP_MOVED: &str = "<?php header('Location: /blog/post.php', true, 303);\n";

/// A page that is worth compressing.
pub(super) const LONG: &str = concat!(
    "<p>one and the same sentence, again and again</p>\n<p>one and the same sentence, again and again</p>\n",
    "<p>one and the same sentence, again and again</p>\n<p>one and the same sentence, again and again</p>\n",
    "<p>one and the same sentence, again and again</p>\n<p>one and the same sentence, again and again</p>\n",
);

/// Prints the user that runs it, and its folder; a program of an account.
pub(super) const WHO: &str =
    "id -un; id -gn; umask; basename \"$PWD\"; echo \"$REMOTE_USER $AUTH_TYPE\"\n";

/// Prints the PATH that suexec gives to programs.
pub(super) const PATH: &str =
    "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$PATH\"\n";

/// Makes the server send a file, which may be missing.
pub(super) const LEND: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\nX-Powered-By: sh\\nX-Sendfile: %s/private%s\\n\\n' \"${PWD%/*}\" \"${PATH_INFO:-/a.txt}\"\n";

/// Prints the variables of a PHP program that do not depend on the server.
pub(super) const PHP_APP: &str = "<?php\nheader('Content-Type: text/plain');\n\
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'PATH_INFO', 'SCRIPT_NAME', 'PHP_SELF', 'REMOTE_ADDR', 'HTTP_X_TEST', 'HTTP_COOKIE'] as $name)\n\
  echo \"$name=\", $_SERVER[$name] ?? '', \"\\n\";\n\
print_r($_GET); print_r($_POST); print_r($_COOKIE);\n";

/// Makes the server send a file, in PHP.
pub(super) const PHP_SEND: &str = "<?php\nheader('Content-Type: text/plain');\n\
header('X-Sendfile: ' . dirname(__DIR__) . ($_SERVER['QUERY_STRING'] == 'none' ? '/private/none' : '/private/a.txt'));\n";

/// An application that speaks SCGI on a Unix socket, and prints its variables.
pub(super) const SCGI: &str = include_str!("scgi.py");

/// Echoes the messages of a WebSocket.
pub(super) const TALK: &str = include_str!("../../../../../examples/programs/websocket.py");

/// Sends back all data over the connection of its client.
pub(super) const ECHO: &str = "#!/bin/sh\nprintf 'Status: 101 Switching Protocols\\nUpgrade: %s\\nX-Powered-By: sh\\n\\n' \"$HTTP_UPGRADE\"\nexec cat\n";

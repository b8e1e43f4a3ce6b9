# What all attacks share. attack/run starts them: as root, in namespaces of their own, with the accounts www, alice and bob.
# Here, the network has nothing but a loopback interface, so one port serves every attack.
set -u
: "${GALGO:?attack/run names the binary}" "${W:?attack/run makes the folder}" "${SOURCES:?attack/run names the folder of C programs}"
PORT=8080 U=http://127.0.0.1:8080 SERVER=
HOMES=$W/home

# expect ACTUAL EXPECTED WHAT: prints the verdict of one promise.
expect() {
  if [ "$1" = "$2" ]; then echo "held: $3"; else echo "BROKEN: $3: expected $2, got $1"; fi
}

# not_run WHY: ends an attack that can prove nothing.
not_run() { echo "NOT RUN: $*"; exit 3; }

# eventually SECONDS COMMAND...: repeats a command until it succeeds, at most for so long.
eventually() {
  local ends=$((SECONDS + $1 + 1)); shift
  until "$@" >/dev/null 2>&1; do [ "$SECONDS" -lt "$ends" ] || return 1; sleep .05; done
}

# compile NAME [FLAGS]: compiles src/NAME.c and prints the path of the program.
compile() {
  local name=$1; shift
  gcc -O1 -o "$W/bin/$name" "$SOURCES/$name.c" "$@" || not_run "gcc failed for $name.c"
  echo "$W/bin/$name"
}

# put OWNER FILE: copies a program into the cgi-bin of an account, or of the server's own user (www).
put() {
  local folder=$HOMES/$1/cgi-bin
  [ "$1" = www ] && folder=$W/cgi-bin
  install -o "$1" -g "$1" -m 755 "$2" "$folder/"
}

# put_text OWNER NAME: the same for a program given on standard input.
put_text() { cat >"$W/bin/$2"; put "$1" "$W/bin/$2"; }

# configure: writes galgo.toml; standard input is what follows the common keys.
configure() {
  {
    printf 'listen = ["127.0.0.1:%s"]\nuser = "www"\naccess_log = "%s/log/access"\nerror_log = "%s/log/error"\nspool = "%s/spool"\n' \
      "$PORT" "$W" "$W" "$W"
    cat
    printf '\n[[route]]\npath = "/"\nfiles = "%s/files"\n' "$W"
  } >"$W/galgo.toml"
}

# home_folders: a [userdir] table that runs programs of /~alice/ and /~bob/ as their owners.
home_folders() {
  printf '[userdir]\nfiles = "public_html"\ncgi = "cgi-bin"\nuser = "owner"\nusers = ["alice", "bob"]\n'
}

is_listening() { grep -q 'listening on' "$W/log/out"; }
has_started_or_ended() { is_listening || ! kill -0 "$SERVER"; }

# try_start [COMMAND...]: starts galgo, by a command if one is given; fails if it does not start.
try_start() {
  : >"$W/log/out" # what an earlier galgo has said there is not this one's
  "$@" "$GALGO" serve --config "$W/galgo.toml" >"$W/log/out" 2>"$W/log/start" </dev/null &
  SERVER=$!
  eventually 20 has_started_or_ended
  is_listening
}

# start [COMMAND...]: the same; an attack whose galgo does not start proves nothing.
start() { try_start "$@" || not_run "galgo did not start: $(tail -n 1 "$W/log/start")"; }

# stop: ends galgo by SIGTERM, and waits for it.
stop() { kill -TERM "$SERVER"; wait "$SERVER" 2>/dev/null; SERVER=; }

# get PATH [CURL OPTIONS]: prints the body of a response.
get() { local path=$1; shift; curl -s -m 15 "$@" "$U$path"; }
# status PATH [CURL OPTIONS]: prints the status of a response; 000 if there is none.
status() { local path=$1; shift; curl -s -o /dev/null -m 15 -w '%{http_code}' "$@" "$U$path"; }

# spawner: prints the process id of galgo's spawner.
spawner() { pgrep -P "$SERVER" -f 'galgo.* spawner' | head -n 1; }
# running NAME: prints how many processes have exactly this name.
running() { pgrep -xc "$1"; }
# none_runs NAME: whether no process has this name.
none_runs() { ! pgrep -x "$1"; }

#!/usr/bin/env bash
# A guestbook: GET lists the newest 100 entries, POST signs.
set -euo pipefail
export LC_ALL=C.UTF-8 # ${#text} counts characters, not bytes

body_limit=16384 # bytes

page='<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>'

form='<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>'

refuse() { # status sentence
  printf 'Status: %s\nContent-Type: text/html; charset=utf-8\n\n%s\n' "$1" "$page"
  printf '<p role="alert">%s</p>\n<p><a href="">Back to the guestbook</a></p>\n' "$2"
  exit 0
}

database() { # runs the SQL on its standard input
  { printf '%s\n' '.timeout 5000' ".separator ''" "
      CREATE TABLE IF NOT EXISTS entry (
        id INTEGER PRIMARY KEY,
        signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
        name TEXT NOT NULL,
        message TEXT NOT NULL);"
    cat
  } | sqlite3 -batch -bail -init /dev/null "${GUESTBOOK_DB:-../data/guestbook.db}"
}

listing() {
  local entries
  entries=$(database <<'SQL'
    CREATE TEMP VIEW escaped AS SELECT id, signed_at,
      replace(replace(replace(replace(replace(name,
        '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#x27;') AS name,
      replace(replace(replace(replace(replace(message,
        '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#x27;') AS message
      FROM entry;
    SELECT '<article>', char(10), '<h2>', name, ' <time>', signed_at, '</time></h2>', char(10),
      '<p>', message, '</p>', char(10), '</article>'
      FROM escaped ORDER BY id DESC LIMIT 100;
SQL
  )
  printf 'Content-Type: text/html; charset=utf-8\n\n%s\n%s\n' "$page" "$form"
  if [[ -n $entries ]]; then printf '%s\n' "$entries"; fi
}

# Reads the request body into $body. Without CONTENT_LENGTH it lasts until the end of the input.
# A NUL, which no variable can hold, becomes another control character: refused as well.
read_body() {
  local LC_ALL=C wanted=${CONTENT_LENGTH:-$((body_limit + 1))} # C: ${#body} counts bytes
  ((wanted <= body_limit)) || wanted=$((body_limit + 1))
  body=$(head -c "$wanted" | tr '\0' '\1' && printf .) # the dot saves line ends at the end
  body=${body%.}
  ((${#body} <= body_limit)) || refuse '413 Content Too Large' 'The form is larger than 16 KiB.'
  [[ -z ${CONTENT_LENGTH-} ]] || ((${#body} >= CONTENT_LENGTH)) ||
    refuse '400 Bad Request' 'The form arrived incomplete.'
}

decode() { # text: undoes the percent-encoding
  local text=${1//+/ }
  text=${text//\\/\\\\}
  text=${text//%00/%01} # as above
  printf -v decoded %b "${text//%/\\x}"
}

# Reads the form into $name and $message. Of a repeated field the first counts.
read_form() {
  local type=${CONTENT_TYPE-} body pair pairs decoded
  type=${type%%;*}
  type=${type%"${type##*[! ]}"}
  [[ ${type,,} == application/x-www-form-urlencoded ]] ||
    refuse '415 Unsupported Media Type' 'This is not the form of this page.'
  read_body
  [[ ! $body =~ %($|.$|[^0-9A-Fa-f]|.[^0-9A-Fa-f]) ]] ||
    refuse '400 Bad Request' 'The form is not percent-encoded UTF-8.'
  decode "$body"
  printf %s "$decoded" | iconv -f UTF-8 -t UTF-16 >/dev/null 2>&1 ||
    refuse '400 Bad Request' 'The form is not percent-encoded UTF-8.'
  unset name message
  mapfile -d '&' -t pairs < <(printf %s "$body")
  for pair in "${pairs[@]}"; do
    decode "${pair#*=}"
    case $pair in
      name=*) name=${name-$decoded} ;;
      message=*) message=${message-$decoded} ;;
    esac
  done
}

# Takes the blanks around a field away, makes its line ends LF, and checks it.
check() { # field limit allowed
  local -n text=$1
  text=${text-}
  text=${text//$'\r\n'/$'\n'}
  text=${text//$'\r'/$'\n'}
  text=${text#"${text%%[! $'\n']*}"}
  text=${text%"${text##*[! $'\n']}"}
  [[ -n $text ]] || refuse '400 Bad Request' "The $1 is empty."
  ((${#text} <= $2)) || refuse '400 Bad Request' "The $1 is longer than $2 characters."
  [[ ${text//"$3"/} != *[$'\x01'-$'\x1f'$'\x7f'-$'\u9f']* ]] ||
    refuse '400 Bad Request' "The $1 contains control characters."
}

literal() { # text as SQL: in hexadecimal, where nothing can be mistaken for SQL
  printf "CAST(x'%s' AS TEXT)" "$(printf %s "$1" | od -An -v -tx1 | tr -d ' \n')"
}

sign() {
  local name message
  read_form
  check name 64 ''
  check message 1000 $'\n'
  database <<<"INSERT INTO entry (name, message) VALUES ($(literal "$name"), $(literal "$message"));"
  printf 'Status: 303 See Other\nLocation: %s\n\n' "$SCRIPT_NAME"
}

case ${REQUEST_METHOD-} in
  GET | HEAD) listing ;;
  POST) sign ;;
  *) refuse $'405 Method Not Allowed\nAllow: GET, HEAD, POST' 'Only GET, HEAD and POST work here.' ;;
esac

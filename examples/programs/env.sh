#!/bin/sh
# The environment of this request as a table. Values are the client's: they are escaped.
cat <<'HTML'
Content-Type: text/html; charset=utf-8

<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Environment</title>
<link rel="stylesheet" href="/style.css">
<h1>Environment</h1>
<pre>
HTML
env | LC_ALL=C sort | sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'
echo '</pre>'

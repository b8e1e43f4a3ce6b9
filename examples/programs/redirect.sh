#!/bin/sh
# The responses of RFC 3875 6.2 that are not documents, chosen by the query.
case $QUERY_STRING in
  to=local) # 6.2.2: the server answers with that path, the client sees nothing of it
    printf 'Location: /cgi-bin/debug/redirected?locally\n\n' ;;
  to=file) # 6.2.2, to a static file
    printf 'Location: /index.html\n\n' ;;
  to=client) # 6.2.3: 302 without a document
    printf 'Location: %s://%s/\n\n' "${REQUEST_SCHEME:-http}" "${HTTP_HOST:-localhost}" ;;
  to=document) # 6.2.4: with a status and a document of its own
    printf 'Status: 301 Moved Permanently\nLocation: %s://%s/\n' "${REQUEST_SCHEME:-http}" "${HTTP_HOST:-localhost}"
    printf 'Content-Type: text/plain\n\nThis page lives at / now.\n' ;;
  to=loop) # 6.2.2 without an end: the server must give up
    printf 'Location: %s?to=loop\n\n' "$SCRIPT_NAME" ;;
  *)
    printf 'Status: 400 Bad Request\nContent-Type: text/plain\n\n'
    printf 'Ask for ?to=local, file, client, document or loop.\n' ;;
esac

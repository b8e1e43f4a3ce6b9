// Guestbook: GET lists the newest 100 entries, POST signs.
//
// It speaks CGI itself: net/http/cgi would take longer to load than the program runs, and it does
// not see a request body that comes without CONTENT_LENGTH.
package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	_ "github.com/mattn/go-sqlite3"
)

const bodyLimit = 16 * 1024 // bytes

const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>
`

const form = `<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>
`

const schema = `CREATE TABLE IF NOT EXISTS entry (
	id INTEGER PRIMARY KEY,
	signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
	name TEXT NOT NULL,
	message TEXT NOT NULL)`

// A refusal is a request that gets an error page: a status line and what is wrong.
type refusal struct{ status, sentence string }

func (r refusal) Error() string { return r.sentence }

func badRequest(format string, values ...any) error {
	return refusal{"400 Bad Request", fmt.Sprintf(format, values...)}
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := respond(out)
	var refused refusal
	if errors.As(err, &refused) {
		fmt.Fprintf(out, "Status: %s\nContent-Type: text/html; charset=utf-8\n\n%s", refused.status, page)
		fmt.Fprintf(out, "<p role=\"alert\">%s</p>\n<p><a href=\"\">Back to the guestbook</a></p>\n", refused.sentence)
	} else if err != nil {
		log.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func respond(out io.Writer) error {
	switch os.Getenv("REQUEST_METHOD") {
	case "GET", "HEAD":
		return list(out)
	case "POST":
		return sign(out)
	}
	return refusal{"405 Method Not Allowed\nAllow: GET, HEAD, POST", "Only GET, HEAD and POST work here."}
}

func list(out io.Writer) error {
	db, err := database()
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query("SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100")
	if err != nil {
		return err
	}
	defer rows.Close()

	fmt.Fprint(out, "Content-Type: text/html; charset=utf-8\n\n", page, form)
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;").Replace
	for rows.Next() {
		var name, signedAt, message string
		if err := rows.Scan(&name, &signedAt, &message); err != nil {
			return err
		}
		fmt.Fprintf(out, "<article>\n<h2>%s <time>%s</time></h2>\n<p>%s</p>\n</article>\n",
			escape(name), signedAt, escape(message))
	}
	return rows.Err()
}

func sign(out io.Writer) error {
	fields, err := readForm()
	if err != nil {
		return err
	}
	name, err := check(fields, "name", 64, unicode.IsControl)
	if err != nil {
		return err
	}
	message, err := check(fields, "message", 1000, func(r rune) bool { return r != '\n' && unicode.IsControl(r) })
	if err != nil {
		return err
	}
	db, err := database()
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("INSERT INTO entry (name, message) VALUES (?, ?)", name, message); err != nil {
		return err
	}
	fmt.Fprintf(out, "Status: 303 See Other\nLocation: %s\n\n", os.Getenv("SCRIPT_NAME"))
	return nil
}

func database() (*sql.DB, error) {
	path := os.Getenv("GUESTBOOK_DB")
	if path == "" {
		path = "../data/guestbook.db"
	}
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_busy_timeout=5000")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(schema)
	return db, err
}

func readForm() (map[string]string, error) {
	mediaType, _, _ := strings.Cut(os.Getenv("CONTENT_TYPE"), ";")
	if !strings.EqualFold(strings.TrimSpace(mediaType), "application/x-www-form-urlencoded") {
		return nil, refusal{"415 Unsupported Media Type", "This is not the form of this page."}
	}
	body, err := readBody()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for pair := range strings.SplitSeq(body, "&") {
		key, value, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(value)
		if err != nil || !utf8.ValidString(value) {
			return nil, badRequest("The form is not percent-encoded UTF-8.")
		}
		if _, repeated := fields[key]; !repeated {
			fields[key] = value
		}
	}
	return fields, nil
}

// readBody reads the request body. Without CONTENT_LENGTH it lasts until the end of the input.
func readBody() (string, error) {
	announced, err := strconv.ParseInt(os.Getenv("CONTENT_LENGTH"), 10, 64)
	known := err == nil
	if !known {
		announced = bodyLimit + 1
	}
	body, err := io.ReadAll(io.LimitReader(os.Stdin, min(announced, bodyLimit+1)))
	switch {
	case err != nil:
		return "", err
	case len(body) > bodyLimit:
		return "", refusal{"413 Content Too Large", "The form is larger than 16 KiB."}
	case known && int64(len(body)) < announced:
		return "", badRequest("The form arrived incomplete.")
	}
	return string(body), nil
}

// check takes the blanks around a field away, makes its line ends LF, and refuses what is wrong with it.
func check(fields map[string]string, name string, limit int, unwanted func(rune) bool) (string, error) {
	text := strings.Trim(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(fields[name]), " \n")
	switch {
	case text == "":
		return "", badRequest("The %s is empty.", name)
	case utf8.RuneCountInString(text) > limit:
		return "", badRequest("The %s is longer than %d characters.", name, limit)
	case strings.ContainsFunc(text, unwanted):
		return "", badRequest("The %s contains control characters.", name)
	}
	return text, nil
}

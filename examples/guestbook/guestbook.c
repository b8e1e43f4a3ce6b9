/* A guestbook: GET lists the newest 100 entries, POST signs.
 * cc -O2 -o guestbook-c guestbook.c -lsqlite3 */
#include <ctype.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BODY_LIMIT = 16 * 1024 }; /* bytes */

static const char PAGE[] =
    "<!doctype html>\n"
    "<html lang=\"en\">\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Guestbook</title>\n"
    "<link rel=\"stylesheet\" href=\"/style.css\">\n"
    "<h1>Guestbook</h1>\n";

static const char FORM[] =
    "<form method=\"post\">\n"
    "<label>Name <input name=\"name\" maxlength=\"64\" required></label>\n"
    "<label>Message <textarea name=\"message\" maxlength=\"1000\" rows=\"4\" required></textarea></label>\n"
    "<button>Sign</button>\n"
    "</form>\n";

static const char SCHEMA[] =
    "CREATE TABLE IF NOT EXISTS entry ("
    "id INTEGER PRIMARY KEY,"
    "signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),"
    "name TEXT NOT NULL,"
    "message TEXT NOT NULL)";

/* A field of the form: not terminated, as a value may hold a NUL until it is checked. */
struct field {
    char *text;
    size_t length;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

/* Answers with an error page and ends. `what` is the field the sentence begins with, or "". */
static void refuse(const char *status, const char *what, const char *sentence)
{
    printf("Status: %s\nContent-Type: text/html; charset=utf-8\n\n%s", status, PAGE);
    printf("<p role=\"alert\">%s%s</p>\n<p><a href=\"\">Back to the guestbook</a></p>\n", what, sentence);
    exit(EXIT_SUCCESS);
}

static void fail(sqlite3 *db)
{
    fprintf(stderr, "guestbook: %s\n", sqlite3_errmsg(db));
    exit(EXIT_FAILURE);
}

static sqlite3 *database(void)
{
    const char *path = variable("GUESTBOOK_DB");
    sqlite3 *db;
    if (sqlite3_open(*path ? path : "../data/guestbook.db", &db) != SQLITE_OK)
        fail(db);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, SCHEMA, NULL, NULL, NULL) != SQLITE_OK)
        fail(db);
    return db;
}

static void print_escaped(const unsigned char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': fputs("&amp;", stdout); break;
        case '<': fputs("&lt;", stdout); break;
        case '>': fputs("&gt;", stdout); break;
        case '"': fputs("&quot;", stdout); break;
        case '\'': fputs("&#x27;", stdout); break;
        default: putchar_unlocked(*text);
        }
}

static void list(void)
{
    sqlite3 *db = database();
    sqlite3_stmt *rows;
    const char *query = "SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100";
    if (sqlite3_prepare_v2(db, query, -1, &rows, NULL) != SQLITE_OK)
        fail(db);

    int state = sqlite3_step(rows); /* an error here can still become a failure without a page */
    if (state == SQLITE_ROW || state == SQLITE_DONE)
        printf("Content-Type: text/html; charset=utf-8\n\n%s%s", PAGE, FORM);
    for (; state == SQLITE_ROW; state = sqlite3_step(rows)) {
        fputs("<article>\n<h2>", stdout);
        print_escaped(sqlite3_column_text(rows, 0));
        printf(" <time>%s</time></h2>\n<p>", sqlite3_column_text(rows, 1));
        print_escaped(sqlite3_column_text(rows, 2));
        fputs("</p>\n</article>\n", stdout);
    }
    if (state != SQLITE_DONE)
        fail(db);
    sqlite3_finalize(rows);
    sqlite3_close(db);
}

/* The request body. Without CONTENT_LENGTH it lasts until the end of the input. */
static struct field body(void)
{
    static char buffer[BODY_LIMIT + 1];
    const char *length = variable("CONTENT_LENGTH");
    size_t announced = *length ? strtoul(length, NULL, 10) : sizeof buffer;
    size_t wanted = announced < sizeof buffer ? announced : sizeof buffer;
    size_t received = fread(buffer, 1, wanted, stdin);
    if (received > BODY_LIMIT)
        refuse("413 Content Too Large", "", "The form is larger than 16 KiB.");
    if (*length && received < announced)
        refuse("400 Bad Request", "", "The form arrived incomplete.");
    return (struct field){buffer, received};
}

static void check_media_type(void)
{
    static const char expected[] = "application/x-www-form-urlencoded";
    const char *type = variable("CONTENT_TYPE");
    size_t length = strcspn(type, ";");
    while (length > 0 && type[length - 1] == ' ')
        length--;
    if (length != sizeof expected - 1 || strncasecmp(type, expected, length) != 0)
        refuse("415 Unsupported Media Type", "", "This is not the form of this page.");
}

static int hex(char digit)
{
    return isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10;
}

/* Undoes the percent-encoding, in place: the result is never longer. */
static void decode(struct field *field)
{
    char *from = field->text, *end = from + field->length, *to = from;
    while (from < end) {
        char c = *from++;
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (end - from < 2 || !isxdigit((unsigned char)from[0]) || !isxdigit((unsigned char)from[1]))
                refuse("400 Bad Request", "", "The form is not percent-encoded UTF-8.");
            c = (char)(hex(from[0]) << 4 | hex(from[1]));
            from += 2;
        }
        *to++ = c;
    }
    field->length = (size_t)(to - field->text);
}

/* The value of a field, still encoded; of a repeated field the first counts. */
static struct field find(struct field form, const char *name)
{
    size_t name_length = strlen(name);
    char *end = form.text + form.length;
    for (char *pair = form.text, *next; pair < end; pair = next + 1) {
        next = memchr(pair, '&', (size_t)(end - pair));
        if (!next)
            next = end;
        if ((size_t)(next - pair) > name_length && pair[name_length] == '=' && !memcmp(pair, name, name_length)) {
            char *value = pair + name_length + 1;
            return (struct field){value, (size_t)(next - value)};
        }
    }
    return (struct field){end, 0};
}

/* The code point at *text, which moves behind it; -1 where the bytes are not UTF-8. */
static long code_point(const unsigned char **text, const unsigned char *end)
{
    static const long least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *s = *text;
    int more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : (*s & 0xf0) == 0xe0 ? 2 : (*s & 0xf8) == 0xf0 ? 3 : -1;
    if (more < 0 || end - s <= more)
        return -1;
    long c = more ? *s & (0x3f >> more) : *s;
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (s[i] & 0x3f);
    }
    *text = s + more + 1;
    return c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? -1 : c;
}

/* Takes the blanks around a field away and makes its line ends LF. */
static void tidy(struct field *field)
{
    char *to = field->text, *end = field->text + field->length;
    for (char *from = field->text; from < end; from++)
        if (*from != '\r')
            *to++ = *from;
        else if (from + 1 == end || from[1] != '\n')
            *to++ = '\n';
    while (to > field->text && (to[-1] == ' ' || to[-1] == '\n'))
        to--;
    while (field->text < to && (*field->text == ' ' || *field->text == '\n'))
        field->text++;
    field->length = (size_t)(to - field->text);
}

/* Decodes a field, once every field is found: what is decoded may look like another field. */
static void check(struct field *field, const char *name, size_t limit, bool multiline)
{
    decode(field);
    tidy(field);
    const unsigned char *text = (unsigned char *)field->text, *end = text + field->length;
    size_t characters = 0;
    bool control = false;
    while (text < end) {
        long c = code_point(&text, end);
        if (c < 0)
            refuse("400 Bad Request", "", "The form is not percent-encoded UTF-8.");
        if (c < 0x20 ? !(multiline && c == '\n') : c >= 0x7f && c < 0xa0)
            control = true;
        characters++;
    }
    if (characters == 0)
        refuse("400 Bad Request", name, " is empty.");
    if (characters > limit)
        refuse("400 Bad Request", name, multiline ? " is longer than 1000 characters." : " is longer than 64 characters.");
    if (control)
        refuse("400 Bad Request", name, " contains control characters.");
}

static void sign(void)
{
    check_media_type();
    struct field form = body(), name = find(form, "name"), message = find(form, "message");
    check(&name, "The name", 64, false);
    check(&message, "The message", 1000, true);

    sqlite3 *db = database();
    sqlite3_stmt *insert;
    if (sqlite3_prepare_v2(db, "INSERT INTO entry (name, message) VALUES (?, ?)", -1, &insert, NULL) != SQLITE_OK)
        fail(db);
    sqlite3_bind_text(insert, 1, name.text, (int)name.length, SQLITE_STATIC);
    sqlite3_bind_text(insert, 2, message.text, (int)message.length, SQLITE_STATIC);
    if (sqlite3_step(insert) != SQLITE_DONE)
        fail(db);
    sqlite3_finalize(insert);
    sqlite3_close(db);
    printf("Status: 303 See Other\nLocation: %s\n\n", variable("SCRIPT_NAME"));
}

int main(void)
{
    static char output[64 * 1024];
    setvbuf(stdout, output, _IOFBF, sizeof output); /* a usual page leaves in one write */

    const char *method = variable("REQUEST_METHOD");
    if (!strcmp(method, "GET") || !strcmp(method, "HEAD"))
        list();
    else if (!strcmp(method, "POST"))
        sign();
    else
        refuse("405 Method Not Allowed\nAllow: GET, HEAD, POST", "", "Only GET, HEAD and POST work here.");
    return EXIT_SUCCESS;
}

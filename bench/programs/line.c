// What most people mean by "a CGI program in C": dynamically linked, prints a line.
#include <stdio.h>

int main(void) {
    fputs("Content-Type: text/plain\r\n\r\nhello from a program with libc\n", stdout);
    return 0;
}

/* The shortest CGI program in C. */
#include <stdio.h>

int main(void)
{
    puts("Content-Type: text/plain; charset=utf-8\n\nHello from C.");
    return 0;
}

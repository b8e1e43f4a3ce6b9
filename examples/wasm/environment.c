/* Prints the variables of the request, one a line, in the order they come. */
#include <stdio.h>

extern char **environ;

int main(void)
{
    printf("Content-Type: text/plain\nX-Content-Type-Options: nosniff\n\n");
    for (char **variable = environ; *variable; variable++)
        puts(*variable);
    return 0;
}

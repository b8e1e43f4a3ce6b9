/* What template.c asks of fork.c. */
#ifndef GALGO_FORK_H
#define GALGO_FORK_H

#include <sys/types.h>

/* Why this process cannot be forked; NULL: it can be. To be asked before the first child is made. */
const char *galgo_cannot_fork(void);

/* A child that is the server's, as this process is: 0 in the child. */
pid_t galgo_make_child(void);

/* From here on each child is in a Landlock domain of its own, where the kernel has scopes. */
void galgo_make_ruleset(void);

/* From the first until the second nobody of the same user may look into this process, nor into its children:
   /proc/PID/mem can be written to. */
void galgo_close_memory(void);
void galgo_open_memory(void);

#endif

/* Holds a pod's namespaces until it is told to end. */
#include <signal.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, SIG_IGN); /* a pod whose containers share processes has it as the first */
    for (;;)
        pause();
}

/* free_static_stderr_closed.c - misuse in a program without a standard error: it dies all the same.
 *
 * The line goes nowhere, and must not go into a file that has got the number 2; the parent of the crash, this
 * program, then says the expected line itself and dies in the same way.
 */
#include "misuse.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    static _Alignas(64) char bytes[64];
    pid_t child = fork();
    if (child == 0) {
        close(2);
        free(hidden(bytes));
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        return 0;
    expect_foreign("free", bytes);
    free(hidden(bytes));
    return 0;
}

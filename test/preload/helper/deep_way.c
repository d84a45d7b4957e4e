/* deep_way.c - dlopen of a bare name: the loader looks where the caller's own RUNPATH says, and in nobody else's.
 *
 * -DMIDDLE: a library with a RUNPATH that opens leaf.so for who asks; else the program, without one. Says "fine" at its end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#ifdef MIDDLE
const char *middle_opens(int mode) {
    void *leaf = dlopen("libhak_test_leaf.so", mode);
    return leaf ? NULL : dlerror();
}
#else
int main(int argc, char **argv) {
    void *middle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const char *(*opens)(int) = middle ? (const char *(*)(int))dlsym(middle, "middle_opens") : NULL;
    if (!opens) return fprintf(stderr, "deep_way: %s\n", dlerror()), 1;
    if (dlopen("libhak_test_leaf.so", RTLD_NOW)) return fputs("deep_way: found without a RUNPATH\n", stderr), 1;
    if (!dlerror()) return fputs("deep_way: dlopen failed, and dlerror says nothing\n", stderr), 1;
    for (int i = 0; i < 2; i++) {
        const char *reason = opens(i ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW);
        if (reason) return fprintf(stderr, "deep_way: %s\n", reason), 1;
    }
    return puts("fine") < 0;
}
#endif

/* deep_plugin.c - a library that is loaded with RTLD_DEEPBIND: it finds libc's malloc and free before all others. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *from_the_start;

__attribute__((constructor)) static void begin(void) { from_the_start = malloc(100); }
__attribute__((destructor)) static void end(void) { free(realloc(from_the_start, 200)); }

void plugin_take(void *block) { free(block); }
void *plugin_give(size_t bytes) { return malloc(bytes); }
void *plugin_grow(void *block, size_t bytes) { return realloc(block, bytes); }

/* Blocks that libc makes, freed here; and its own. */
int plugin_alone(void) {
#ifndef OWN_MALLOC
    char *text = strdup("libc's strdup asks whoever is malloc for libc");
    if (!text) return 0;
    free(text);
    char *line = NULL;
    if (asprintf(&line, "%d", 12345) != 5) return 0;
    line = realloc(line, 1000);
    free(line);
    void *aligned = NULL;
    if (posix_memalign(&aligned, 256, 1000) || (unsigned long)aligned % 256) return 0;
    free(aligned);
#endif
    free(malloc(50));
    free(calloc(3, 50));
    return from_the_start != NULL; /* all threads', so that nobody changes it */
}

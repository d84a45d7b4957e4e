/* watch.h - what start-up calls of recording. */
#ifndef HAK_WATCH_WATCH_H
#define HAK_WATCH_WATCH_H

#include "base/attr.h"

/* The control word is looked at from here on. */
void hak_watch_hang(void);
/* HAKMEM_RECORD is set: recording begins. */
void hak_watch_at_start(void);
/* HAKMEM_GUARD is set: samples are guarded from the start. */
void hak_watch_guards_at_start(void);
void hak_watch_guards_in_child(void);
/* Where the state of learning is, for readers from outside: a uint64_t that is odd while it is written, then struct
 * hak_learn_stats of hakmem.h. */
void hak_watch_publish_learn(const void *shown, size_t bytes);
/* Start-up sets it: says that a file cannot be written. */
extern void (*hak_watch_on_failure)(const char *what, const char *path, int error);
/* Recording's and guards' numbers, for Prometheus: one call of `add` for each, with its name, kind and help. */
void hak_watch_metrics(void (*add)(void *context, const char *name, const char *kind, const char *help, uint64_t number), void *context);
/* The program ends: the dump that HAKMEM_RECORD asked for. */
void hak_watch_at_exit(void);

#endif

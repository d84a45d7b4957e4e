/* report.h - the statistics as text for people and as JSON for programs.
 *
 * hak_stats_json() of hakmem.h is made here too. Nothing here allocates; a report is built in 8 KiB of stack.
 */
#ifndef HAK_FRONT_REPORT_H
#define HAK_FRONT_REPORT_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At start, after hak_options_load(): keeps a copy of standard error for HAKMEM_STATS and for what
 * HAKMEM_REPORT may have to say, because many programs (all of coreutils) close theirs before the library's destructor runs. */
void hak_report_at_start(void);
/* In fork's child: the copy is closed. What the child has to say goes to its own standard error, if that is still what it was. */
void hak_report_in_child(void);

/* From the library's destructor: what HAKMEM_STATS and HAKMEM_REPORT ask for. Writes each at most once in a
 * process, however many threads come here; a fork's child, which has a process id of its own, writes its own. */
void hak_report_at_exit(void);

/* A further member of the JSON object, with its comma; start.c sets it. After each row of at most 1 KiB it calls row_end. */
extern void (*hak_report_on_json)(struct hak_text *text, void (*row_end)(void *context), void *context);

/* Where standard error is now, if it is still what it was when the program began: 2, or our copy of it; else -1. */
int hak_report_descriptor(void);

/* The line that names a file which cannot be written; for others who write files. */
void hak_report_failure_say(const char *what, const char *path, int error);

#ifdef __cplusplus
}
#endif
#endif

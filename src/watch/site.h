/* site.h - counts for the call sites that the program names itself (hak_alloc_at, hak_free_at).
 *
 * hak_site_stats() of hakmem.h is made here. The front calls the notes after the block is there.
 */
#ifndef HAK_WATCH_SITE_H
#define HAK_WATCH_SITE_H

#include "base/attr.h"
#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAK_SITE_COUNT_MAX = 4096 };

/* `bytes` are the block's usable bytes. Site 0 is not counted. */
void hak_site_note_alloc(hak_site_t site, size_t bytes);

/* A site that has no row (the table was full when it first allocated, or it never did) counts as site 0. */
void hak_site_note_free(hak_site_t site, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif

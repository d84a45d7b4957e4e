/* layout.c - what src/stats.rs, src/site.rs and src/walk.rs know of hakmem.h, checked by the C compiler. Nothing of it is linked. */
#include <hakmem/hakmem.h>

_Static_assert(sizeof(struct hak_class_stats) == 32, "ClassStats");
_Static_assert(sizeof(struct hak_stats) == 4712, "Stats");
_Static_assert(offsetof(struct hak_stats, dead_heap_count) == 80, "Stats");
_Static_assert(offsetof(struct hak_stats, class_stats) == 96, "Stats");
_Static_assert(offsetof(struct hak_stats, counter) == 4192, "Stats");
_Static_assert(offsetof(struct hak_stats, taken_bytes) == 4704, "Stats");
_Static_assert(sizeof(struct hak_site_stats) == 40, "SiteStats");
_Static_assert(offsetof(struct hak_site_stats, free_bytes) == 32, "SiteStats");
_Static_assert(sizeof(struct hak_held) == 24, "Held");
_Static_assert(offsetof(struct hak_held, large) == 16, "Held");

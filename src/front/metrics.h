/* metrics.h - the statistics in Prometheus's text format: hak_stats_prometheus() of hakmem.h. Nothing here allocates. */
#ifndef HAK_FRONT_METRICS_H
#define HAK_FRONT_METRICS_H

#include "base/text.h"

/* What recording has to say, one call of `add` for each number; start.c sets it. `name` and `kind` as in the format, without hakmem_. */
typedef void hak_metric_add(void *context, const char *name, const char *kind, const char *help, uint64_t number);
extern void (*hak_metrics_on_recording)(hak_metric_add *add, void *context);

#endif

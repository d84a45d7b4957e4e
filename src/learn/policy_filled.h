/* policy_filled.h - what of the slabs that earlier runs filled the next one may count on (docs/learning.md, "Memory that will be filled").
 *
 * Pure:      numbers by class in, numbers by class out.
 * Rule:      what two runs in a row filled is known; one that fills less takes the rest back at once. Where a run came to fill clearly less than was
 *            known, what is known rises by a quarter of the way, in one run of 2, 4 .. 256.
 * Dear:      where huge pages took longer than small ones would have, one run of 4, 16 or 64 tries again; each that is right doubles that. A frozen
 *            program does not try. One that is dear costs 4 ms more on a virtual machine whose host takes free memory away, and three that are not
 *            save 1.9, so that two of three are to be right (ahead.h).
 */
#ifndef HAK_LEARN_POLICY_FILLED_H
#define HAK_LEARN_POLICY_FILLED_H

#include "slab/class.h"

struct hak_policy;

/* The file's rows by class; what is of no class of this version is left out. */
struct hak_policy_known {
    uint32_t known[HAK_CLASS_COUNT], last[HAK_CLASS_COUNT]; /* slabs */
};
void hak_policy_known_of(const struct hak_policy *policy, struct hak_policy_known *known);

/* A run filled `seen`. `draw`: any number, another one each time. Says whether it is news. */
bool hak_policy_filled(struct hak_policy *policy, const uint32_t seen[HAK_CLASS_COUNT], uint64_t draw);

/* Is this a run that has huge pages made? It had them: were they dear? Says whether it is news. */
bool hak_policy_tries(const struct hak_policy *policy, bool is_frozen, uint64_t draw);
bool hak_policy_tried(struct hak_policy *policy, bool were_dear);

#endif

/* big_sites.h - what is known of call sites of large blocks, in the policy file: kind `keep`. */
#ifndef HAK_LEARN_BIG_SITES_H
#define HAK_LEARN_BIG_SITES_H

#include "learn/policy.h"

extern const struct hak_policy_room hak_big_sites;

#endif
